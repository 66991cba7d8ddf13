"""What the speed measurements call their contenders and tasks. No torch here."""

OURS = "ropelime"
DEFAULT = "ropelime, a default explanation"
LOOP, LOOP_ANSWER = "loop", "loop, logits at the answer"
CONTEXTCITE = "ContextCite"
CAPTUM_LOO, CAPTUM_SHAPLEY = "Captum FeatureAblation", "Captum ShapleyValueSampling"
SHAPIQ = "shapiq KernelSHAP"
CONTENDERS = (OURS, DEFAULT, LOOP, LOOP_ANSWER, CONTEXTCITE, CAPTUM_LOO, CAPTUM_SHAPLEY, SHAPIQ)
RETIRED = ("ropelime, compiled",)  # contenders of older results files, which pages leave out

RANDOM_HALF, LEAVE_ONE_OUT = "64 random-half masks", "leave-one-out"
TASKS = (RANDOM_HALF, LEAVE_ONE_OUT)

SPARSE, ONE_AT_A_TIME, CACHED = "√M kept", "one-at-a-time", "leave-one-out, cached"
SCALED = (SPARSE, ONE_AT_A_TIME, CACHED)
