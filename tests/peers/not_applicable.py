"""Tests of scikit-learn's that say nothing about olsen, as regular expressions on their names, each
with its reason.

The list is checked from both sides by ``plugin.py``: a test that is not on it and fails, or that
passes without fitting olsen at all, is an error; so is an entry that no test matches, or that
matches a test which passes with olsen in it.
"""

INTERNALS = "private functions of scikit-learn are tested; nothing of ours is fitted"
CLASSIFIER = "classification; nothing of ours is fitted"
GCV = "RidgeCV's own closed form alone, or its parameters; nothing of ours is fitted"
ITERATIONS = "asserts how one of scikit-learn's iterative solvers stops (iterations, warnings)"
REFUSALS = "asserts that one of scikit-learn's solvers refuses what it cannot do; here it is done"

LISTED = {
    r"test_linear_regression": "its second half fits a single row; olsen asks for two at least",
    r"test_inplace_data_preprocessing\[.*-None\]": (
        "asserts that copy_X=False overwrites X; olsen never does"
    ),
    r"test_(sparse_|csr_|dtype_)?preprocess_.*": INTERNALS,
    r"test_rescale_data.*": INTERNALS,
    r"test_fused_types_make_dataset.*": INTERNALS,
    r"test_predict_proba_lr_large_values": CLASSIFIER,
    r"test_array_api_move_estimator_to": (
        "asserts the words of an error, which olsen raises in its own"
    ),
    r"test_primal_dual_relationship": INTERNALS,
    r"test_X_CenterStackOp.*": INTERNALS,
    r"test_compute_(gram|covariance).*": INTERNALS,
    r"test_check_gcv_mode_choice.*": INTERNALS,
    r"test_lbfgs_solver_consistency.*": INTERNALS,
    r"test_ridge_regression_convergence_fail": ITERATIONS,
    r"test_n_iter": ITERATIONS,
    r"test_ridge_fit_intercept_sparse_sag.*": ITERATIONS,
    r"test_ridge_fit_intercept_sparse_error.*": REFUSALS,
    r"test_ridge_regression_check_arguments_validity\[(sparse_cg|cholesky|lsqr|saga)-.*-True\]": (
        REFUSALS
    ),
    r"test_array_api_error_and_warnings_for_solver_parameter.*": REFUSALS,
    r"test_ridge_gcv_integer_arrays": GCV,
    r"test_ridge_array_api_compliance\[RidgeCV.*": GCV,
    r"test_regularization_limits_ridge_gcv\[.*-inf_alpha\]": GCV,
    r"test_ridge_gcv_cv_results_not_stored.*": GCV,
    r"test_ridge_best_score\[None-ridge0-.*": GCV,
    r"test_dense_sparse\[.*-_test_ridge_loo\]": GCV,
    r"test_ridgecv_store_cv_results.*": GCV,
    r"test_ridgecv_alphas_conversion.*": GCV,
    r"test_ridgecv_alphas_zero\[RidgeCV-None\]": GCV,
    r"test_ridgecv_int_alphas": GCV,
    r"test_ridgecv_alphas_validation.*": GCV,
    r"test_ridgecv_alphas_scalar.*": GCV,
    r"test_metadata_routing_with_default_scoring.*": GCV,
    r"test_set_score_request_with_default_scoring.*": GCV,
    r"test_regularization_limits_ridge_classifier_gcv\[.*-inf_alpha\]": CLASSIFIER,
    r"test_ridge_array_api_compliance\[RidgeClassifier.*": CLASSIFIER,
    r"test_ridge_best_score\[.*-ridge1-.*": CLASSIFIER,
    r"test_ridgecv_alphas_zero\[RidgeClassifierCV-.*": CLASSIFIER,
    r"test_dense_sparse\[.*-_test_ridge_classifiers\]": CLASSIFIER,
    r"test_ridge_classifier_.*": CLASSIFIER,
    r"test_ridge_regression_custom_scoring.*": CLASSIFIER,
    r"test_class_weight.*": CLASSIFIER,
}
