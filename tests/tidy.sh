#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/tidy.sh: the rules of docs/STYLE.md that a script can check, over every file that git
# tracks.
#
#   tests/tidy.sh           one line per finding, "FILE:LINE: rule N: what"; exit 1 if there is any
#   tests/tidy.sh TREE      another tree (tests/tidy_test.sh gives it bad ones)
#
# Rule 2: files of at most 500 lines. Rule 3: functions of at most 70 lines, lines of at most 100
# columns. Rule 7: no numbered or "old" copies of a file, no code behind #if 0. Rule 14: includes
# start at the root, the own header comes first. Rule 15: an SPDX line; a header says what it is.
# And schemas/past/fingerprints.txt never loses a line, as far as git's history goes back.
# What was brought along and is kept as it is (ops/demo) is not ours to tidy.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
# Bytes everywhere: mawk, Debian's awk, knows no UTF-8; check_all counts characters by itself.
export LC_ALL=C

say() { printf '%s\n' "$*"; }
# With new files that are not committed yet.
tracked() { git ls-files --cached --others --exclude-standard; }

# The files with code in them: by their ending, and the scripts without one by their first line.
sources() {
    local file
    tracked | grep -v '^ops/demo/' | while read -r file; do
        [ -f "$file" ] || continue
        case $file in
        *.c | *.h | *.cu | *.cuh | *.rs | *.py | *.sh | *.sql) say "$file" ;;
        *.* | LICENSE) ;;
        *) [ "$(head -c 2 "$file" | tr -d '\0')" != '#!' ] || say "$file" ;;
        esac
    done
}

# Every source: length, width, SPDX, copies.
check_all() {
    awk '
        function found(line, rule, what) {
            printf "%s:%d: rule %d: %s\n", FILENAME, line, rule, what
        }
        FNR == 1 { spdx = 0 }
        FNR <= 3 && /SPDX-License-Identifier: Apache-2\.0/ { spdx = 1 }
        FNR == 3 && !spdx { found(1, 15, "no SPDX line at the top") }
        FNR == 501 { found(FNR, 2, "more than 500 lines") }
        length($0) > 100 {
            columns = $0
            gsub(/[\200-\277]/, "", columns)
            if (length(columns) > 100) found(FNR, 3, length(columns) " columns, at most 100")
        }
        /^#if 0/ { found(FNR, 7, "code behind #if 0") }
    ' "$@"
    say "$@" | tr ' ' '\n' | awk '
        { seen[$0] = 1; name[NR] = $0 }
        END {
            for (i = 1; i <= NR; i++) {
                plain = name[i]
                if (plain ~ /_(old|new|copy|bak|orig)\.[a-z]+$/ ||
                    (sub(/_?v?[0-9]+\./, ".", plain) && plain in seen))
                    printf "%s:1: rule 7: a second copy of one job\n", name[i]
            }
        }'
}

# C: includes, and function length: the brace style puts the braces of a function, and only
# those, in column 1.
check_c() {
    awk -v roots="$(tracked | cut -d/ -f1 | sort -u | tr '\n' ' ')" '
        function found(line, rule, what) {
            printf "%s:%d: rule %d: %s\n", FILENAME, line, rule, what
        }
        BEGIN { count = split(roots, parts, " "); for (i = 1; i <= count; i++) root[parts[i]] = 1 }
        FNR == 1 { includes = 0; told = 0 }
        /^[a-z].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); start = FNR }
        /^{/ { open = FNR }
        /^}/ && open {
            lines = FNR - open - 1
            if (lines > 70) found(start, 3, name "() has " lines " lines, at most 70")
            open = 0
        }
        /^#include "/ {
            path = $2; gsub(/"/, "", path); top = path; sub(/\/.*/, "", top)
            if (!(top in root) || path !~ /\//)
                found(FNR, 14, "\"" path "\" does not start at the root")
        }
        /^#include/ && includes++ == 0 && FILENAME ~ /\.c$/ {
            own = FILENAME; sub(/\.c$/, ".h", own)
            if ($2 != "\"" own "\"" && (getline line < own) >= 0)
                found(FNR, 14, "\"" own "\" is not the first include")
        }
        FILENAME ~ /\.cuh?$|\.h$/ && FNR <= 12 && /^ \* [A-Za-z].*[a-z]/ { told = 1 }
        FILENAME ~ /\.h$/ && FNR == 12 && !told {
            found(1, 15, "the header does not say what it is for")
        }
    ' "$@"
}

# bash: function length, by the same layout as in C.
check_shell() {
    awk '
        FNR == 1 { open = 0 }
        /^[a-z_]+\(\) \{$/ { open = FNR; name = $1 }
        /^}/ && open {
            lines = FNR - open - 1
            if (lines > 70)
                printf "%s:%d: rule 3: %s has %d lines, at most 70\n", FILENAME, open, name, lines
            open = 0
        }
    ' "$@"
}

# Published schemas stay readable: a fingerprint taken out of the list would hide that one is lost.
check_fingerprints() {
    local list=schemas/past/fingerprints.txt
    [ -f "$list" ] || return 0
    git log -p --format= -- "$list" | sed -n 's/^-\([A-Z].*\)/\1/p' | sort -u |
        grep -vxFf "$list" | sed "s|^|$list:1: a published schema is missing: |" || true
}

mapfile -t all < <(sources)
mapfile -t c < <(printf '%s\n' "${all[@]}" | grep -E '\.(c|h|cu|cuh)$' || true)
mapfile -t shell < <(printf '%s\n' "${all[@]}" | grep -vE '\.(c|h|cu|cuh|rs|py|sql)$' || true)
findings=$({
    check_all "${all[@]}"
    [ ${#c[@]} -eq 0 ] || check_c "${c[@]}"
    [ ${#shell[@]} -eq 0 ] || check_shell "${shell[@]}"
    check_fingerprints
} | sort)
[ -z "$findings" ] || { say "$findings"; exit 1; }
say "tidy: ${#all[@]} files"
