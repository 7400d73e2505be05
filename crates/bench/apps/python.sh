# The standard library, compiled, then imported from 2 x SIZE times.
prepare() {
    library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    mkdir lib
    (cd "$library" && cp -r --parents ./*.py collections json email html http importlib logging unittest xml asyncio concurrent "$OLDPWD/lib")
    find lib -name __pycache__ -prune -exec rm -r {} +
}
work() {
    python3 -m compileall -q lib
    for turn in $(seq $((SIZE * 2))); do
        PYTHONPATH=$PWD/lib python3 -c 'import asyncio, email.message, json, http.client, unittest, xml.dom.minidom, logging.config, argparse, decimal, difflib, pdb
print(json.__file__.startswith("'"$PWD"'"))'
    done > imports
}
result() { sort imports | uniq -c; find lib | sort; }
