"""GPU kernels made fast by search.

Reading order: `protocols` (every extension point), `kernel`, `tasks` and `evaluation` (the
records), `search` (the algorithm on one screen) with `tree`, `selection` and `reward`, then
`pipeline` (the gates a kernel passes), `menu` and `tuner` (who proposes), `emulator` and `gpu`
(the devices), `store` (the journal), `api` (what a user calls).
"""
