#!/bin/sh
# Runs tests as on a processor with AVX2 and without VNNI, whatever this one has: user-mode QEMU runs the interpreter, its
# libraries and its child processes. Answers are what such a processor gives; times mean nothing, and limits of time in
# tests may be too short. Needs Debian's qemu-user and the environment that `make install-test` makes.
#
#   tests/avx2.sh              the tests named below: `make test-avx2`
#   tests/avx2.sh FILE ...     these
set -eu
cd "$(dirname "$0")/.."
here=$PWD/.venv-avx2
qemu=$(command -v qemu-x86_64) || { echo "tests/avx2.sh: no qemu-x86_64. Run apt-get install qemu-user." >&2; exit 1; }

# An environment like .venv whose interpreter is a script: found as `sys.executable`, it takes child processes along.
packages=$(cd .venv && ls -d lib/python3*/site-packages)
mkdir -p "$here/bin" "$here/$(dirname "$packages")"
cp .venv/pyvenv.cfg "$here"
ln -sfn "$PWD/.venv/$packages" "$here/$packages"
grep -lI "^#!$PWD/.venv/bin/python" .venv/bin/* | while read -r program; do
    sed "1s|/.venv/|/.venv-avx2/|" "$program" >"$here/bin/$(basename "$program")"
    chmod +x "$here/bin/$(basename "$program")"
done
cat >"$here/bin/python" <<END
#!/bin/sh
exec "$qemu" -cpu Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid -0 "$here/bin/python" "$(readlink -f .venv/bin/python)" "\$@"
END
chmod +x "$here/bin/python"
ln -sfn python "$here/bin/python3"

# That it is the other class is proven by a column of ones before anything else.
"$here/bin/python" -c "
from workbench.values.system.cpu import this_cpu
assert this_cpu().kind == 'AVX2 without VNNI', this_cpu()"
test="$here/bin/python -m pytest -q -p no:cacheprovider"
$test tests/quantization/test_exact_operands.py -k column_of_ones
[ $# -gt 0 ] || set -- tests/quantization/test_exact_operands.py tests/quantization/lowering tests/values/system/test_cpu.py \
    tests/targets/onnxruntime tests/targets/openvino tests/commands/doctor/test_machine.py tests/test_saturation.py
exec $test "$@"
