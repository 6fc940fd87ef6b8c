"""A synthetic log in the exact KDD Cup 2012 format: the published models planted in a realistic background.

In reading order: `shares` (what is known of the real log), `planted` (the models and the near misses beside them),
`background` (everything else), `spelling` (columns to text).
"""
