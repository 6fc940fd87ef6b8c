"""Multiple-play bandits in the position-based model: worlds, policies, lower bounds and the loop that plays them.

In reading order: `world` (theta, kappa, regret), `kl`, `tally` (S and N), `ranking`, `region` (Eq. 7), `posterior`, `policies/`
(one file each, with its equation), `play` (the loop, compiled once per policy), `simulate` (many runs), `bounds` (how low regret
can be).
"""

from bandits.fresh import drop_stale_kernels

drop_stale_kernels()
