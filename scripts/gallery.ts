/**
 * Writes docs/built/gallery: reports of real plans, as the command line makes them, and a list of
 * them with the answer of each.
 *
 * Usage: npx tsx scripts/gallery.ts [NAME ...]
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import { runCli } from '../src/cli/program.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const GALLERY = join(root, 'docs/built/gallery');

/** A page of the gallery: a plan or a comparison of a program of the repository, and its report. */
export interface GalleryPage {
  readonly name: string;
  readonly about: string;
  /**
   * Words after `shardwright`; paths are those of a checkout, the second may be the name of a
   * model.
   */
  readonly make: readonly string[];
  readonly report: readonly string[];
}

const TINY = 'test/fixtures/torch/llama-tiny/joint.expanded.txt.gz';

export const PAGES: readonly GalleryPage[] = [
  {
    name: 'llama3-8b-2l',
    about:
      '2 layers of Llama-3 8B, forward and backward as PyTorch wrote them, on 64 H100s; with ' +
      'the questions of `--what-if`',
    make: [
      'plan',
      'examples/llama3-8b-2l-b16.fx.txt.gz',
      '--mesh',
      'dp=8,tp=8',
      '--cluster',
      'dgx-h100',
    ],
    report: ['--what-if'],
  },
  {
    name: 'llama-tiny',
    about:
      'a Llama of two small layers with its backward pass, batch cut over the outer mesh ' +
      'dim, on 4 H100s',
    make: ['plan', TINY, '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100', '--inputs', 'S(0)R'],
    report: [],
  },
  {
    name: 'llama-pipeline',
    about:
      'Llama 3.2 1B by name, in training, in 4 pipeline stages of 8 H100s each: the schedule ' +
      'drawn, seconds and memory of every stage',
    make: [
      'plan',
      'llama-3.2-1b',
      '--mesh',
      'dp=4,tp=2',
      '--cluster',
      'dgx-h100',
      '--pp',
      '4',
      '--batch',
      '64',
    ],
    report: [],
  },
  {
    name: 'compare-llama-tiny',
    about:
      'the same model compared over all meshes of 4 devices, the free optimum next to the recipes',
    make: ['compare', TINY, '--devices', '4', '--cluster', 'dgx-h100', '--quiet', '--json'],
    report: [],
  },
  {
    name: 'compare-llama-70b',
    about:
      'Llama 3.1 70B by name on 256 H100s: all recipes, meshes, schedules and ' +
      'recomputations, what a run of 15T tokens takes, a layout that somebody runs next to ' +
      'the best, and launch configurations',
    make: [
      'compare',
      'llama-3.1-70b',
      '--devices',
      '256',
      '--cluster',
      'dgx-h100',
      '--seq',
      '8192',
      '--global-batch',
      '512',
      '--tokens',
      '15T',
      '--price',
      '2.5USD',
      '--layout',
      'tp=8,pp=4,dp=8,mbs=1,zero=1,recompute=core',
      '--quiet',
      '--json',
    ],
    report: [],
  },
  {
    name: 'planning-llama-70b',
    about:
      'the same model on two clusters of 64 to 512 devices: each at its best plan, with ' +
      'time, money and energy, and curves of strong scaling',
    make: [
      'compare',
      'llama-3.1-70b',
      '--cluster',
      'dgx-h100',
      '--cluster',
      'dgx-b200',
      '--devices',
      '64,128,256,512',
      '--seq',
      '8192',
      '--global-batch',
      '512',
      '--plans',
      'fsdp,hsdp,pp+zero1,pp+zero1+tp+sp,hsdp+tp+sp',
      '--tokens',
      '15T',
      '--price',
      '2.5USD',
      '--price',
      '4.5USD',
      '--quiet',
      '--json',
    ],
    report: [],
  },
];

/** The HTML of a page. @throws Error when a command fails */
export async function galleryPage({ make, report }: GalleryPage): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-gallery-'));
  try {
    const [command, model, ...rest] = make;
    const words = [command, existsSync(join(root, model)) ? join(root, model) : model, ...rest];
    const subject = join(folder, command === 'plan' ? 'plan' : 'comparison.json');
    if (command === 'plan') await run([...words, '--no-recipes', '-o', subject]);
    else writeFileSync(subject, await run(words));
    return await run(['report', subject, ...report]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function run(words: readonly string[]): Promise<string> {
  let out = '';
  let err = '';
  const io = {
    stdout: (text: string) => void (out += text),
    stderr: (text: string) => void (err += text),
    isTerminal: false,
  };
  const code = await runCli(words, io);
  if (code !== 0) throw new Error(`shardwright ${words.join(' ')} exits ${code}: ${err}`);
  return out;
}

/** A page without its clock times: the drawing of the solver, and `run` of the data. */
export function stillPage(html: string): string {
  return html
    .replace(/<figure [^>]*data-run[^]*?<\/figure>/g, '')
    .replace(/"run":\{[^{}]*\}/, '"run":{}');
}

/** The list of the pages, with the answer of each, from the pages themselves. */
export async function galleryList(pages: ReadonlyMap<string, string>): Promise<string> {
  const made = PAGES.filter(({ name }) => pages.has(name));
  const parts = made.map(({ name, about, make, report }) => {
    const data = /<script type="application\/json" id="shardwright-report">([^]*?)<\/script>/.exec(
      pages.get(name) ?? '',
    );
    const { answer } = JSON.parse(data?.[1] ?? '{"answer":[]}') as {
      answer: { label: string; text: string }[];
    };
    const subject = make[0] === 'plan' ? 'out' : 'comparison.json';
    const first =
      'npx shardwright ' +
      `${make.map((w) => (/[()]/.test(w) ? `'${w}'` : w)).join(' ')}${make[0] === 'plan' ? ` -o ${subject}` : ` > ${subject}`}`;
    const second = `npx shardwright report ${[subject, ...report].join(' ')} -o report.html`;
    return `## [${name}.html](${name}.html)

${about.charAt(0).toUpperCase()}${about.slice(1)}.

\`\`\`sh
${first}
${second}
\`\`\`

${answer.map((a) => `- **${a.label}**: ${a.text.replaceAll('*', '\\*').replaceAll('_', '\\_')}`).join('\n')}`;
  });
  const text = `# Gallery

Reports as \`shardwright report\` writes them: one HTML file each, which opens from disk and loads nothing. Download one, or open it
in a checkout. [What a report shows](../../reports.md).

${parts.join('\n\n')}
`;
  return format(text, { ...(await resolveConfig(join(root, 'README.md'))), parser: 'markdown' });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mkdirSync(GALLERY, { recursive: true });
  const asked = process.argv.slice(2);
  const wanted = PAGES.filter(({ name }) => asked.length === 0 || asked.includes(name));
  const pages = new Map<string, string>();
  for (const page of wanted) {
    const html = await galleryPage(page);
    pages.set(page.name, html);
    writeFileSync(join(GALLERY, `${page.name}.html`), html);
  }
  writeFileSync(join(GALLERY, 'README.md'), await galleryList(pages));
}
