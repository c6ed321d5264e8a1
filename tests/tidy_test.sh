#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/tidy_test.sh: tidy.sh finds what it claims to find. A tree with one offence per rule, each
# of which must be reported at its place, and nothing else.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
git init -q
mkdir common ops

spdx='/* SPDX-License-Identifier: Apache-2.0 */'
repeat() { yes "$2" | head -n "$1" || true; }

{ echo "$spdx"; repeat 500 '/* line */'; } >common/long.c
{ echo "$spdx"; printf 'int f(void)\n{\n'; repeat 71 '    g();'; echo '}'; } >common/function.c
{ echo "$spdx"; printf 'int f(void)\n{\n'; repeat 70 '    g();'; echo '}'; } >common/good.c
{ echo "$spdx"; printf '/* %s */\n' "$(repeat 95 x | tr -d '\n')"; } >common/wide.c
# 100 columns, but 194 bytes.
{ echo "$spdx"; printf '/* %s */\n' "$(repeat 94 é | tr -d '\n')"; } >common/unicode.c
{ echo "$spdx"; echo '#if 0'; echo '#endif'; } >common/dead.c
{ echo "$spdx"; echo 'int x;'; } >common/good_v2.c
{ echo "$spdx"; echo '#include "good.h"'; } >common/include.c
{ echo '/* SPDX-License-Identifier: Apache-2.0'; echo ' *'; echo ' * order - a header.'; echo ' */'
    repeat 12 '/* line */'; } >common/order.h
{ echo "$spdx"; echo '#include <stdio.h>'; echo '#include "common/order.h"'; } >common/order.c
{ echo "$spdx"; echo 'int x;'; echo 'int y;'; } >common/order2.c
{ echo "$spdx"; repeat 14 '#define X 1'; } >common/mute.h
printf 'int x;\nint y;\nint z;\n' >common/bare.c
{ printf '#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\nf() {\n'; repeat 71 '    g'; echo '}'
} >ops/script
# A line that goes, one that moves and one that stays.
mkdir -p schemas/past
list=schemas/past/fingerprints.txt
printf 'Hello 1\nHello 2\nYield 3\n' >$list
git add $list
git -c user.name=x -c user.email=x commit -qm x
printf 'Yield 3\nHello 2\n' >$list
git -c user.name=x -c user.email=x commit -qam x

expected='common/bare.c:1: rule 15
common/dead.c:2: rule 7
common/function.c:2: rule 3
common/good_v2.c:1: rule 7
common/include.c:2: rule 14
common/long.c:501: rule 2
common/mute.h:1: rule 15
common/order.c:2: rule 14
common/order2.c:1: rule 7
common/wide.c:2: rule 3
ops/script:3: rule 3
schemas/past/fingerprints.txt:1: a published schema is missing'
if found=$("$here/tidy.sh" "$tree"); then
    echo "tidy.sh accepts a tree with every kind of offence"
    exit 1
fi
diff <(printf '%s\n' "$expected") <(printf '%s\n' "$found" | cut -d: -f1-3) || {
    echo "expected (<) and found (>) differ"
    exit 1
}
