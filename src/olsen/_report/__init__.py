"""The report of a fit: first a dict of plain types (`summary`), then one self-contained HTML page
(`pages`).
"""
