/**
 * Writes docs/planning.md: one story of a team that rents a cluster, with what the commands print.
 * A test of `test:full` compares the two. Run: npx tsx scripts/docs-planning.ts (minutes)
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import { runCli } from '../src/cli/program.ts';

/** Path of the page. */
export const PLANNING_PAGE = fileURLToPath(new URL('../docs/planning.md', import.meta.url));

/** Commands of the page, and how many of their lines it shows. */
export const STORY = {
  side:
    'compare llama-3.1-70b --cluster dgx-h100:256 --cluster dgx-b200:128 --seq 8192 ' +
    '--global-batch 512 --tokens 15T --price 2.5USD --price 4.5USD',
  equal:
    'compare llama-3.1-70b --cluster dgx-h100 --cluster dgx-b200 --devices 288 --equal cost ' +
    '--seq 8192 --global-batch 1440 --plans fsdp,hsdp,pp+zero1,pp+zero1+tp+sp,hsdp+tp+sp --tokens ' +
    '15T --price 2.5USD --price 4.5USD',
  goals:
    'compare llama-3.1-8b --cluster dgx-h100 --devices 64,128,256 --plans fsdp,zero1,zero2 ' +
    '--tokens 1T --price 2.5USD --within 15d --spend 50kUSD',
  scaling:
    'compare llama-3.1-70b --cluster dgx-b200 --devices 64,128,256,512 --seq 8192 ' +
    '--global-batch 512 --plans fsdp,hsdp,pp+zero1,pp+zero1+tp+sp,hsdp+tp+sp',
} as const;

/** A file of questions, as the page shows it. */
export const QUESTIONS = `models: [llama-3.1-8b, llama-3.1-70b]
clusters:
  - { name: dgx-h100, price: 2.5USD }
  - { name: dgx-b200, price: 4.5USD }
devices: [64, 128, 256]
sequences: [8192]
globalBatches: [512]
tokens: 15T
timeLimitSeconds: 300 # of each question
`;

async function printed(command: string): Promise<string> {
  let out = '';
  const io = {
    stdout: (text: string) => void (out += text),
    stderr: () => undefined,
    isTerminal: false,
  };
  await runCli([...command.split(' '), '--quiet'], io);
  return `\`\`\`\n$ npx shardwright ${command}\n${out.trimEnd()}\n\`\`\``;
}

/** The page, formatted as the repository is. */
export async function planningPage(): Promise<string> {
  const text = `# Planning: 70B on 256 H100s, or on 128 B200s?

<!-- Written by scripts/docs-planning.ts; a test compares the two. -->

A team is about to train Llama 3.1 70B on 15T tokens, and two clusters are on offer. The prices are those of the offers: a device for
an hour. \`NAME:DEVICES\` gives each cluster its own number of devices.

${await printed(STORY.side)}

Each row is the best of all recipes, meshes, schedules and recomputations on that cluster, found as [\`compare\`](costs.md) finds it on
one. Time is with failures, checkpoints and restarts. \`-v\` adds ranges, tokens a second, MFU, meshes and what was assumed.
A cluster file can state it instead ([costs.md](costs.md#clusters-hosts-racks-and-networks)).

## As many as cost the same

\`--equal cost\` gives every further cluster as many devices as cost what those of the first do, in whole hosts or trays.

${await printed(STORY.equal)}

A batch must divide over the data ranks: 1440 sequences divide over both 288 and 160 devices.
\`--plans\` names the recipes to compare; without it all are.

## By when, and for how much

\`--within\` says which of the devices or clusters end the run in time, and takes the cheapest of them; where none does, how many would.
\`--spend\` says how many tokens a sum of money trains, and where, in the time of \`--within\` if that stands there, too.

${await printed(STORY.goals)}

## How far it scales

Lists of \`--devices\`, \`--seq\` or \`--global-batch\` make curves. Over devices a stated batch is strong scaling; without one the batch
is a sequence for each device, which is weak scaling. Efficiency is what a device does, over what it did at the first point.

${await printed(STORY.scaling)}

\`--json\` prints the points and curves, and \`report\` draws them:

\`\`\`sh
npx shardwright ${STORY.scaling} --json > scaling.json
npx shardwright report scaling.json -o scaling.html
\`\`\`

## Many questions

A file names models, clusters and sizes. Every model is asked on every cluster with every size; each answer is a file of its own in
the folder, as \`compare --json\` prints it.

\`\`\`yaml
${QUESTIONS}\`\`\`

\`\`\`sh
npx shardwright compare --sweep questions.yaml -o answers
\`\`\`

The same command goes on from the answers that are there; an answer that a time limit stopped is asked again. \`--slice 2/4\` asks every
fourth question, so that four machines can share a folder; answers do not depend on who gave them. At the end \`planning.json\` has all
points at their best, for \`report\`. A cluster may be a JSON file beside the questions. Where one cluster has a price, all must.

On a Ray cluster the Python package does the same with every question as a task: a question whose node is lost is asked again elsewhere,
and the folder is that of one machine, byte for byte. Shardwright and its Python package must be installed on every node.

\`\`\`
python -m shardwright.sweep --address auto questions.yaml -o answers
\`\`\`

## The layout that you run

\`--layout tp=8,pp=4,dp=8,zero=1\` prices the layout of a running job beside the best one, with the changes of one setting that bring
it nearer; with \`--tokens\` both have their cost: [costs.md](costs.md#the-layout-that-you-run).

## Run the best one

A report of the comparison (\`compare … --json > c.json\`, \`report c.json -o c.html\`) ends with the configurations that run its best plan:
arguments of Megatron-LM, a configuration of torchtitan, one of MaxText. What a trainer cannot do as planned is said in its file.
\`--layout\` reads the first two back.
`;
  return format(text, { ...(await resolveConfig(PLANNING_PAGE)), filepath: PLANNING_PAGE });
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(PLANNING_PAGE, await planningPage());
