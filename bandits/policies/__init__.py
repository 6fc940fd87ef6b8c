"""The policies, one file each, by the name that the command line takes."""

from bandits.policies import bc_mp_ts, oracle, pbm_kl_ucb, pbm_pie, pbm_ts, pbm_ucb, rba_kl_ucb, uniform

MODULES = (pbm_ucb, pbm_pie, pbm_ts, bc_mp_ts, rba_kl_ucb, pbm_kl_ucb, oracle, uniform)
POLICIES = {module.POLICY.name: module.POLICY for module in MODULES}
