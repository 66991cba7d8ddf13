"""The method: masks, scores, targets, locality kernels and the fit."""
