/** The style sheet of the report page: light, dark and paper. */

import { DARK, LIGHT, type Theme } from '../../notations/draw/palette.ts';

/**
 * Colours of the page in addition to those of drawings. Text keeps a contrast of at least 4.5:1 on
 * its background in both themes.
 */
interface PageTheme extends Theme {
  /** Raised background: tables' heads, code. */
  readonly raised: string;
  readonly accent: string;
  readonly good: string;
  readonly compute: string;
  readonly communication: string;
  readonly other: string;
  /** At the edge of what scrolls, where more is behind it. */
  readonly shade: string;
}

const PAGE_LIGHT: PageTheme = {
  ...LIGHT,
  raised: '#f4f6f9',
  accent: '#0b57b0',
  good: '#176b3a',
  compute: '#2f6fb7',
  communication: '#a8480f',
  other: '#6b7280',
  shade: '#16181d59',
};

const PAGE_DARK: PageTheme = {
  ...DARK,
  raised: '#1d2026',
  accent: '#8ab8f5',
  good: '#7fd6a3',
  compute: '#6ea8e6',
  communication: '#ec9a66',
  other: '#9aa3b0',
  shade: '#e8ebf180',
};

function variables(theme: PageTheme): string {
  return Object.entries(theme)
    .map(([name, value]) => `--${name}:${String(value)}`)
    .join(';');
}

/** The style sheet of the page: light, dark by preference or by the switch, and paper. */
export function pageStyle(): string {
  return `
:root{color-scheme:light;${variables(PAGE_LIGHT)}}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;${variables(PAGE_DARK)}}}
:root[data-theme=dark]{color-scheme:dark;${variables(PAGE_DARK)}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main,header,footer{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding-top:36px;display:flex;gap:16px;align-items:flex-start;justify-content:space-between}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:20px;margin:52px 0 12px;scroll-margin-top:16px}
h3{font-size:16px;margin:28px 0 8px}
h2,h3,nav a{overflow-wrap:anywhere}
p{margin:8px 0;max-width:78ch;overflow-wrap:anywhere}
li{overflow-wrap:anywhere}
.soft,.caption{color:var(--soft)}
nav{max-width:1240px;margin:12px auto 0;padding:0 24px;display:flex;flex-wrap:wrap;gap:4px 18px;font-size:14px}
a{color:var(--accent)}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px;border-radius:3px}
button{font:inherit;font-size:14px;color:var(--ink);background:var(--raised);border:1px solid var(--border);border-radius:8px;padding:6px 12px;cursor:pointer;flex:none}
button:hover{border-color:var(--ink)}
.find{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:center}
.find input{font:inherit;font-size:14px;color:var(--ink);background:var(--raised);border:1px solid var(--border);border-radius:8px;padding:6px 12px;flex:1 1 200px;max-width:360px;min-width:0}
th button{all:unset;cursor:pointer;text-decoration:underline dotted;text-underline-offset:3px}
th button:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.answer{margin:20px 0 0;display:grid;grid-template-columns:max-content 1fr;gap:10px 22px;padding:20px 24px;background:var(--raised);border:1px solid var(--border);border-radius:12px}
.answer dt{font-weight:600}
.answer dd{margin:0;overflow-wrap:anywhere}
.good{color:var(--good);font-weight:600}
.scroll{overflow-x:auto;margin:6px 0 12px;background:linear-gradient(to right,var(--page) 40%,transparent) 0 0/48px 100%,linear-gradient(to left,var(--page) 40%,transparent) 100% 0/48px 100%,linear-gradient(to right,var(--shade),transparent) 0 0/18px 100%,linear-gradient(to left,var(--shade),transparent) 100% 0/18px 100%;background-repeat:no-repeat;background-attachment:local,local,scroll,scroll}
table{border-collapse:collapse;width:100%;font-size:14.5px}
.caption{margin:20px 0 0;font-size:14.5px}
th,td{text-align:left;vertical-align:top;padding:7px 14px 7px 0;border-bottom:1px solid var(--border);overflow-wrap:break-word}
th{font-weight:600;white-space:nowrap;color:var(--soft)}
td.number,th.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.name{min-width:14em;overflow-wrap:anywhere}
td.keep{white-space:nowrap}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13.5px}
pre{background:var(--raised);border:1px solid var(--border);border-radius:10px;padding:14px 16px;overflow-x:auto;line-height:1.5;margin:10px 0;tab-size:2}
pre .move{color:var(--communication)}
pre .where{color:var(--accent)}
details{border-bottom:1px solid var(--border)}
details>pre{margin:0 0 14px}
summary{cursor:pointer;padding:9px 0;display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline}
summary::before{content:'▸';color:var(--soft);width:1em}
details[open]>summary::before{content:'▾'}
summary .title{font-weight:600;overflow-wrap:anywhere}
summary .soft{font-size:14px}
.bar{display:flex;height:30px;border-radius:8px;overflow:hidden;border:1px solid var(--border);margin:14px 0 8px;background:var(--raised)}
.bar span{display:block;height:100%;border-right:2px solid var(--page)}
.bar span:last-child{border-right:0}
.bar .compute,.key .compute{background:var(--compute)}
.bar .communication,.key .communication{background:var(--communication)}
.bar .other,.key .other{background:var(--other)}
.bar .m1,.key .m1{background:#77aadd}.bar .m2,.key .m2{background:#ee8866}.bar .m3,.key .m3{background:#44bb99}.bar .m4,.key .m4{background:#eedd88}.bar .m5,.key .m5{background:#ffaabb}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:4px 22px;padding:0;margin:0 0 12px;font-size:14.5px}
.key i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:7px}
.drawings{display:flex;flex-wrap:wrap;gap:20px}
figure{margin:0;border:1px solid var(--border);border-radius:12px;padding:12px;background:var(--page);max-width:100%;overflow-x:auto}
figure svg{display:block;max-width:100%;height:auto}
figure.drawn{margin:14px 0 18px;padding:14px 14px 12px;overflow:visible}
figure.drawn .scroll{margin:0}
figcaption{font-size:14px;margin-top:8px;max-width:78ch}
.chart{display:block}
figure.drawn .chart{width:100%;max-width:900px;min-width:560px;margin:0 auto}
.chart text{fill:var(--ink);font-size:12.5px}
.chart .soft{fill:var(--soft)}
.chart .strong{font-weight:600}
.chart .grid{stroke:var(--border);stroke-width:1}
.chart .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.chart .limit{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:7 4}
.chart .roof{stroke:var(--ink);stroke-width:2}
.chart .front{fill:none;stroke:var(--soft);stroke-width:1.5}
.chart .point{fill:var(--ink)}
.chart .dot{fill:#77aadd;stroke:#16181d;stroke-width:1}
.chart .dot.memory{fill:#eedd88}.chart .dot.launch{fill:#bbcc33}.chart .dot.communication{fill:#ee8866}.chart .dot.chosen{fill:#44bb99;stroke-width:2}.chart .dot.over{fill:#dde1e7;stroke-dasharray:3 2}
.chart .ontask{fill:#16181d;font-size:12px;pointer-events:none}
.chart .number{font-weight:600;font-size:12.5px;paint-order:stroke;stroke:var(--page);stroke-width:3px}
.chart .lead{stroke:var(--soft);stroke-width:1}
.chart .area.compute{fill:var(--compute)}.chart .area.communication{fill:var(--communication)}
.chart .task.compute{fill:#77aadd}.chart .task.communication{fill:#ee8866}
.chart .pass.f{fill:#77aadd}.chart .pass.b{fill:#44bb99}.chart .pass.w{fill:#eedd88}.chart .pass.sum{fill:#ee8866}
.chart .pass.odd.f{fill:#a9cbea}.chart .pass.odd.b{fill:#8fd6c2}
.chart .incumbent{fill:none;stroke:var(--communication);stroke-width:2}.chart .bound{fill:none;stroke:var(--compute);stroke-width:2}
.chart .incumbent.dotted{fill:var(--communication)}.chart .bound.dotted{fill:var(--compute)}
.chart .area.m1{fill:#77aadd}.chart .area.m2{fill:#ee8866}.chart .area.m3{fill:#44bb99}.chart .area.m4{fill:#eedd88}.chart .area.m5{fill:#ffaabb}
.graph{border:1px solid var(--border);border-radius:12px;max-height:680px;overflow:auto;background:var(--page)}
.chart .edge{fill:none;stroke:var(--border);stroke-width:1.3}
.chart .edge.moved{stroke:var(--communication);stroke-width:2}
.chart .edge.next{stroke:var(--soft)}
.chart text.moved{fill:var(--communication);font-size:11.5px;paint-order:stroke;stroke:var(--page);stroke-width:3px}
.node{cursor:pointer}
.node rect{fill:var(--raised);stroke:var(--border)}
.node.backward rect{stroke-dasharray:5 3}
.node.input rect{fill:var(--page);stroke:var(--soft)}
.node:focus{outline:none}
.node:focus-visible rect{stroke:var(--accent);stroke-width:3}
.node.picked rect{stroke:var(--accent);stroke-width:3}
.onpaper{display:none}
footer{padding:40px 24px;color:var(--soft);font-size:14px}
.skip{position:absolute;left:-9999px}
.skip:focus{left:12px;top:12px;background:var(--page);padding:8px 12px;z-index:2}
@media (max-width:640px){main,header,footer,nav{padding-left:16px;padding-right:16px}header{flex-direction:column}.answer{grid-template-columns:1fr;gap:2px;padding:16px}.answer dd{margin-bottom:10px}h1{font-size:23px}table,code{font-size:13px}th,td{padding-right:10px}td.name{min-width:11em}}
@media print{
:root:root:root{color-scheme:light;${variables(PAGE_LIGHT)}}
body{font-size:10.5pt}
main,header,footer{max-width:none;padding:0}
nav,button.theme,.skip,.find{display:none}
h2,h3,.caption{break-after:avoid}
h2{margin-top:26px}
section.sheet{break-before:page}
tr,thead,figure,.answer,.bar,.key{break-inside:avoid}
thead{display:table-header-group}
figure.drawn .chart{min-width:0}
.graph,#strategies{display:none}
.onpaper{display:block}
.scroll,pre{overflow:visible}
.scroll{background:none}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:8.5pt}
table{font-size:9pt}
th,td.keep,th.number{white-space:normal}
th,td{padding-right:8px}
td.name{min-width:13ch}
td code{font-size:8pt}
summary::before{content:none}
}`.trim();
}
