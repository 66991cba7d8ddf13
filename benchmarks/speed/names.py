"""What the speed measurements call their contenders and tasks. No torch here."""

OURS, COMPILED = "ropelime", "ropelime, compiled"
DEFAULT = "ropelime, a default explanation"
LOOP, LOOP_ANSWER = "loop", "loop, logits at the answer"
CONTEXTCITE = "ContextCite"
CAPTUM_LOO, CAPTUM_SHAPLEY = "Captum FeatureAblation", "Captum ShapleyValueSampling"
SHAPIQ = "shapiq KernelSHAP"
CONTENDERS = (
    OURS, COMPILED, DEFAULT, LOOP, LOOP_ANSWER, CONTEXTCITE, CAPTUM_LOO, CAPTUM_SHAPLEY, SHAPIQ
)  # fmt: skip

RANDOM_HALF, LEAVE_ONE_OUT = "64 random-half masks", "leave-one-out"
TASKS = (RANDOM_HALF, LEAVE_ONE_OUT)

SPARSE, ONE_AT_A_TIME, CACHED = "√M kept", "one-at-a-time", "leave-one-out, cached"
SCALED = (SPARSE, ONE_AT_A_TIME, CACHED)
