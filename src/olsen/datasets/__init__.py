"""The data set that comes with the package."""

from __future__ import annotations

from importlib import resources
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

__all__ = ["load_soil_carbon"]


@overload
def load_soil_carbon(*, return_X_y: Literal[False] = ...) -> Bunch: ...
@overload
def load_soil_carbon(
    *, return_X_y: Literal[True]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def load_soil_carbon(
    *, return_X_y: bool = False
) -> Bunch | tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load near-infrared spectra of 732 soils with their carbon content.

    Absorbance of dried soil from fields in Wallonia at 700 wavelengths, 1100 to 2498 nm.
    Neighbouring columns are almost equal (condition number near 1e9), and there are nearly as many
    columns as rows, so least squares fails.

    The rows are the 732 samples with a carbon measurement of the set ``NIRsoil`` of the R package
    prospectr 0.2.8 (MIT licence, beside the file), published as the challenge of Chimiometrie 2006;
    see Fernandez Pierna and Dardenne, Chemometrics and Intelligent Laboratory Systems 91 (2008)
    94-98.

    Parameters
    ----------
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` only.

    Returns
    -------
    bunch : Bunch
        ``data`` (732, 700), ``target`` (732,) in g per 100 g, ``feature_names`` ("1100 nm" ...),
        ``wavelength``, ``DESCR``.

    Examples
    --------
    >>> from olsen.datasets import load_soil_carbon
    >>> load_soil_carbon().data.shape
    (732, 700)
    """
    with (
        resources.files(__name__).joinpath("soil_carbon.npz").open("rb") as file,
        np.load(file) as stored,
    ):
        # multiples of 1e-7 absorbance, stored as second differences along the smooth spectrum: a
        # third of the size
        data = np.cumsum(np.cumsum(stored["spectra"].T, axis=1), axis=1) / 1e7
        target = stored["carbon"] / 1e4
    if return_X_y:
        return data, target
    wavelength = np.arange(1100, 2500, 2)
    return Bunch(
        data=data,
        target=target,
        wavelength=wavelength,
        feature_names=[f"{nm} nm" for nm in wavelength],
        DESCR=load_soil_carbon.__doc__,
    )
