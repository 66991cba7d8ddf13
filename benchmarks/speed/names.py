"""What the measurements and the page about them call things. No torch here."""

OURS, COMPILED = "ropelime", "ropelime, compiled"
DEFAULT = "ropelime, a default explanation"
LOOP, LOOP_ANSWER = "loop", "loop, logits at the answer"
CONTEXTCITE = "ContextCite"
CAPTUM_LOO, CAPTUM_SHAPLEY = "Captum FeatureAblation", "Captum ShapleyValueSampling"
SHAPIQ = "shapiq KernelSHAP"
CONTENDERS = (
    OURS, COMPILED, DEFAULT, LOOP, LOOP_ANSWER, CONTEXTCITE, CAPTUM_LOO, CAPTUM_SHAPLEY, SHAPIQ
)  # fmt: skip

HALVES, LEAVE_ONE_OUT = "64 masks, p = ½", "leave-one-out"
TASKS = (HALVES, LEAVE_ONE_OUT)

SPARSE, SINGLES, CHEAP = "√M kept", "one-at-a-time", "leave-one-out, cheap"
SCALED = (SPARSE, SINGLES, CHEAP)
