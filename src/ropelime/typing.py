"""The arrays that stages exchange, by name and shape."""

import numpy as np
import numpy.typing as npt

Masks = npt.NDArray[np.bool_]  # (N, n), True = the feature is kept
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
