"""All charts: one theme, one function per kind of chart, drawn by Altair.

The same functions serve the report's page, `--plot`, the `.plot()` methods, the papers and the
documentation. They take plain numbers, so every package above may draw. Altair is imported inside
the functions: `import untilt` stays light.
"""
