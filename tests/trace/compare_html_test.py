#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""compare --html, and report's: one page, whole in itself, that draws in a browser; and names that look like HTML stay names."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ALLOCTRACE = os.path.realpath(os.environ.get("ALLOCTRACE", os.path.join(os.environ.get("O", ".output"), "alloctrace")))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MAX_BYTES = 1000000
EVIL = "</script><script>document.documentElement.dataset.evil=1</script><img src=x onerror=document.title=1>&amp;"
failed = False


def result(name, problem):
    global failed
    print(f"not ok {name}: {problem!r}" if problem else f"ok {name}", flush=True)
    failed |= bool(problem)


def compare(page, *words):
    run = subprocess.run([ALLOCTRACE, "compare", "--seed", "3", "-j", "--html", page, *words], capture_output=True, text=True,
                         timeout=100, check=False, stdin=subprocess.DEVNULL)
    result(f"written {os.path.basename(page)}", run.returncode and run.stderr)
    with open(page, encoding="utf-8") as file:
        return json.loads(run.stdout), file.read()


def data_of(text):
    return json.loads(re.search(r'<script id="data" type="application/json">\n(.*?)</script>', text, re.S)[1])


def browse(page, scratch, *options):
    """(the document after its scripts, what the browser wrote to its console, addresses that it asked for)"""
    log = os.path.join(scratch, "net.json")
    run = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", f"--user-data-dir={scratch}/profile",
                          "--enable-logging=stderr", f"--log-net-log={log}", "--window-size=1200,2000", *options,
                          "--dump-dom", f"file://{page}"], capture_output=True, text=True, timeout=120, check=False,
                         stdin=subprocess.DEVNULL)
    with open(log, encoding="utf-8") as file:
        asked = set(re.findall(r'"url":"([a-z]+:[^"]*)"', file.read()))
    return run.stdout, re.findall(r"CONSOLE.*", run.stderr), asked


def own_addresses(addresses, page):
    """Those that the page asked for: a browser has business of its own, with its maker's hosts."""
    return {a for a in addresses if not re.match(r"https?://[a-z0-9.-]*\.(google|googleapis|gvt1|gstatic)\.com/", a)
            and not a.startswith(("chrome", "data:")) and a != f"file://{page}"}


def check_text(report, text):
    result("below 1 MB", len(text) > MAX_BYTES and len(text))
    loads = re.findall(r'<(?:link|img|iframe|object|embed)\b|\bsrc=|@import|url\(', re.sub(r"<script>\n/\*!.*?</script>", "", text, flags=re.S))
    result("loads nothing", loads)
    result("same figures as the report", data_of(text)["comparison"] != report)


def check_browser(page, scratch, chart_cnt):
    dom, console, asked = browse(page, scratch)
    result("no console message", console)
    result("no request", own_addresses(asked, page))
    found = re.search(r'<html[^>]* data-charts="(\d+)"', dom)
    result("all charts drawn", (not found or int(found[1]) != chart_cnt) and (dom[:300], chart_cnt))
    sizes = [int(n) for n in re.findall(r'<canvas[^>]* height="(\d+)"', dom)]
    result("charts have a size", (len(sizes) != chart_cnt or min(sizes, default=0) < 50) and sizes)


def background(page, scratch, scheme):
    """The colour that the page has with light (1) or dark (0) preferred, from a script added at its end."""
    probe = os.path.join(scratch, "probe.html")
    with open(page, encoding="utf-8") as file, open(probe, "w", encoding="utf-8") as out:
        out.write(file.read().replace("</body>", "<script>document.documentElement.dataset.paper = "
                                                 "getComputedStyle(document.body).backgroundColor</script></body>"))
    dom, console, _ = browse(probe, scratch, f"--blink-settings=preferredColorScheme={scheme}")
    result(f"no console message, {('dark', 'light')[scheme]}", console)
    return re.search(r'data-paper="([^"]*)"', dom)[1]


def check_report(saved, page, text):
    """The same page again, of what was saved."""
    run = subprocess.run([ALLOCTRACE, "report", "--html", page, saved], capture_output=True, text=True, timeout=100, check=False)
    result("report writes it", run.returncode and run.stderr)
    with open(page, encoding="utf-8") as file:
        result("report's is the same", file.read() != text)


def charts_expected(report):
    """Counted from the report: two of classes, six of runs, and the latencies where there are any."""
    cnt = 0
    for program in report["programs"]:
        figures = program["configurations"].values()
        occurs = {key for f in figures for key in f if f[key]["high"] > 0}
        cnt += any(k.startswith("calls.") for k in occurs) + 2 * any(k.startswith("kernel_ns.") for k in occurs)
        cnt += len(occurs & {"kernel_ns", "wall_ns", "sys_ns", "max_rss_bytes", "final_rss_bytes", "minor_faults"})
    return cnt


def main():
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as scratch:
        pages = [os.path.join(scratch, name) for name in ("plain.html", "evil.html")]
        saved = os.path.join(scratch, "saved.gz")
        report, text = compare(pages[0], "--save", saved, "--runs", "3", "--policy", "none", "--policy", "all", "trim_loop --iterations 53", "many_small --rounds 1")
        check_text(report, text)
        check_report(saved, os.path.join(scratch, "again.html"), text)
        # In the name of a configuration, a value of the environment, and the command.
        evil, evil_text = compare(pages[1], "--tier", "0", "--runs", "2", "--config", f"{EVIL}:env=A={EVIL}", "--config", "b:", "--",
                                  "sh", "-c", "true", EVIL)
        result("names kept", evil["configurations"][0]["name"] != EVIL or EVIL not in data_of(evil_text)["comparison"]["programs"][0]["name"])
        result("names escaped", "<img" in evil_text or evil_text.count("</script>") != text.count("</script>"))
        if not CHROMIUM:
            print("skip drawn in a browser: no chromium here")
            return
        check_browser(pages[0], scratch, charts_expected(report))
        result("light and dark", [background(pages[0], scratch, scheme) for scheme in (1, 0)] != ["rgb(255, 255, 255)", "rgb(20, 23, 28)"])
        dom, console, _ = browse(pages[1], scratch)
        result("names are no HTML", "data-evil" in dom or "<img" in dom or not re.search(r"<title>Comparison: .*&lt;img", dom))
        result("no console message, names", console)


main()
sys.exit(failed)
