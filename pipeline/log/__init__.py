"""Reading a log: blocks of whole lines, parsed and checked on threads, thinned by the cell sketch.

In reading order: `opening` (bytes of any file), `sniffing` (is it the format at all), `parser` with `digits` (bytes to
columns), `rules` (why a line is bad), `parquet` (the same rules on columns), `scanning` (all of it, over threads), `sketch`
(which cells can pass the filter).
"""
