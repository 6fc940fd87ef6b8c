"""The report: what a workspace holds (`reading`), the paper's claims (`claims`), pictures (`ink`, `charts`), and the page of
`sections` made of `pieces` of HTML (`page`).
"""
