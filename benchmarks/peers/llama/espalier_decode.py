#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""What examples/llama says of its speed, as the benchmarks' JSON line: espalier_decode.py PROGRAM FOLDER"""
import json
import re
import subprocess
import sys

said = subprocess.run([sys.argv[1], sys.argv[2], "--tokens", "120", "--ignore-end"], stdout=subprocess.PIPE, check=True)
found = re.search(rb"generated 120 tokens, ([0-9.]+) (k?)tokens/s", said.stdout)
if not found:
    sys.exit("llama did not say how many tokens it generated in a second")
rate = float(found[1]) * (1000 if found[2] else 1)
print(json.dumps({"row": "llama_decode", "what": "ours", "value": rate, "unit": "tokens/s"}))
