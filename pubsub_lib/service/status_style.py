"""The style of the status page: light and dark, and narrow screens."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ink: #22303c; --soft: #56636f; --line: #d9e0e5; --page: #f3f5f7; --card: #ffffff; --link: #1d5f99;
  --good: #17684b; --good-back: #e2f3ec; --bad: #a32136; --bad-back: #fbe9ec; --own: #eaf2fa;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e3e8ec; --soft: #a5b1bb; --line: #35414b; --page: #12181d; --card: #1a2229; --link: #86bdf0;
    --good: #7fd8b4; --good-back: #14362a; --bad: #ff9fae; --bad-back: #44161f; --own: #1d3145;
  }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--page); font: 15px/1.5 system-ui, sans-serif; }
header, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 20px; overflow-wrap: anywhere; }
header { padding-top: 24px; }
h1 { font-size: 23px; line-height: 1.3; margin: 0 0 8px; }
h2 { font-size: 18px; margin: 0 0 6px; }
p { margin: 0 0 10px; max-width: 85ch; }
a { color: var(--link); }
bdi { display: inline-block; max-width: 100%; overflow: clip; vertical-align: bottom; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; margin: 12px 0 16px; padding: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 12px 0; }
dt { color: var(--soft); }
dd { margin: 0; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px 18px; margin: 0 0 16px;
  overflow-x: auto;
}
.word { white-space: nowrap; }
.state {
  max-width: none; padding: 10px 14px; font-size: 17px; font-weight: 600; border-radius: 8px; border-left: 8px solid;
}
.good { color: var(--good); background: var(--good-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.hint { color: var(--soft); font-size: 14px; }
.problems { margin: 0 0 10px; padding-left: 20px; }
table { border-collapse: collapse; width: 100%; margin: 8px 0 14px; font-size: 14px; }
caption { text-align: left; color: var(--soft); padding: 0 0 4px; }
th, td { text-align: left; vertical-align: top; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; overflow-wrap: normal; }
tbody th { font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th:last-child, td:last-child { padding-right: 0; }
.depth-1 { padding-left: 1em; } .depth-2 { padding-left: 2em; } .depth-3 { padding-left: 3em; }
.depth-4 { padding-left: 4em; }
[class^="depth"] { display: block; }
.own { background: var(--own); border-radius: 4px; padding: 0 7px; font-weight: 600; white-space: nowrap; }
footer { color: var(--soft); font-size: 14px; padding-bottom: 30px; }
@media (max-width: 560px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  section { padding: 12px; }
  th, td { padding-right: 8px; }
  table { font-size: 13px; }
  tbody th { min-width: 6em; }
}
"""
