import sys, time, json, os
sys.path.insert(0, "src")
import numpy as np, torch
from ropelime.surrogate.shapes import random_surrogate, random_scorer
out=open(os.environ["OUT"]+"/gpu.jsonl","w")
for shape in ("smollm2-135m","qwen3-8b"):
    s=random_surrogate(shape, device="cuda", dtype="bfloat16", seed=0)
    sc=random_scorer(s, features=40, tokens=33, seed=0) 
    rng=np.random.default_rng(0); m=np.concatenate([np.ones((1,40),bool), rng.random((64,40))<.5])
    loo=np.concatenate([np.ones((1,40),bool), ~np.eye(40,dtype=bool)])
    norms=s.engine._norms
    from ropelime.surrogate import engine as E
    from contextlib import contextmanager
    @contextmanager
    def nothing(*a): yield
    short=E._short_end
    for r in range(4):
        for name in ("all","no-norms","no-short-end"):
            s.engine._norms = [] if name=="no-norms" else norms
            E._short_end = nothing if name=="no-short-end" else short
            for task,masks,cheap in (("exact",m,False),("default",loo,True)):
                torch.cuda.synchronize(); t=time.perf_counter(); sc.score(masks, kl=False, cheap=cheap); torch.cuda.synchronize()
                d={"shape":shape,"round":r,"configuration":name,"task":task,"seconds":time.perf_counter()-t}
                print(d,flush=True); out.write(json.dumps(d)+"\n"); out.flush()
    if shape=="smollm2-135m":
        s.engine._packs=False
        for task,masks,cheap in (("exact",m,False),("default",loo,True)):
            for r in range(2):
                torch.cuda.synchronize(); t=time.perf_counter(); sc.score(masks, kl=False, cheap=cheap); torch.cuda.synchronize()
                d={"shape":shape,"round":r,"configuration":"loop","task":task,"seconds":time.perf_counter()-t}; print(d,flush=True); out.write(json.dumps(d)+"\n")
    del s, sc
    torch.cuda.empty_cache()
