"""The eight bandit models of the paper, as published: what the synthetic log plants and the report compares with.

Records and theta range: the paper's table "Statistics on the queries". QueryID, kappa and theta: the parameters released with
Gauthier, Gaudel, Fromont and Lompo, "Parametric Graph for Unimodal Ranking Bandit" (ICML 2021), fitted on the same queries
of the same log. They disagree in one figure: query 9's smallest theta is 0.0174 there and 0.023 in the paper.
"""

from typing import NamedTuple


class PublishedModel(NamedTuple):
    """A query's model: kappa by position, theta falling, and what the paper's table says of it."""

    query_id: int
    records: int
    theta_min: float
    theta_max: float
    kappa: tuple[float, ...]
    theta: tuple[float, ...]


MODELS = (
    PublishedModel(2, 216_565, 0.016, 0.077, (1, 0.5032, 0.4033), (0.0773, 0.0235, 0.0183, 0.0181, 0.0163)),
    PublishedModel(19, 68_179, 0.031, 0.050, (1, 0.4857, 0.3298), (0.0500, 0.0467, 0.0366, 0.0343, 0.0306)),
    PublishedModel(7, 435_951, 0.025, 0.067, (1, 0.4910, 0.3448), (0.0667, 0.0464, 0.0420, 0.0261, 0.0253, 0.0247)),
    PublishedModel(9, 110_071, 0.023, 0.069, (1, 0.5459, 0.5290), (0.0687, 0.0615, 0.0402, 0.0384, 0.0228, 0.0174)),
    PublishedModel(10, 147_214, 0.004, 0.148, (1, 0.4111, 0.2751), (0.1485, 0.1148, 0.0740, 0.0392, 0.0131, 0.0044)),
    PublishedModel(
        8, 122_218, 0.108, 0.146, (1, 0.1781, 0.1012), (0.1462, 0.1327, 0.1269, 0.1170, 0.1154, 0.1145, 0.1104, 0.1081)
    ),
    PublishedModel(
        1,
        1_228_004,
        0.022,
        0.149,
        (1, 0.4735, 0.3278),
        (0.1494, 0.1033, 0.0887, 0.0792, 0.0702, 0.0517, 0.0499, 0.0291, 0.0283, 0.0267, 0.0217),
    ),
    PublishedModel(
        4,
        391_951,
        0.022,
        0.084,
        (1, 0.4777, 0.3489),
        (0.0839, 0.0495, 0.0477, 0.0419, 0.0290, 0.0245, 0.0235, 0.0228, 0.0226, 0.0221, 0.0217),
    ),
)
