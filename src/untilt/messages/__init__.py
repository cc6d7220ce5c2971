"""Every sentence that untilt tells as a fact, by area: code -> severity and text.

The only place where such sentences are written. Tests assert codes and fields; the wording of each
message is tested once, in tests/messages.
"""
