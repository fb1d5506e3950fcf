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

A team is about to train Llama 3.1 70B on 15T tokens, and two clusters are on offer. Prices are per device and hour, as offered.
\`NAME:DEVICES\` gives each cluster its own number of devices.

${await printed(STORY.side)}

Each row is the best of all recipes, meshes, schedules and recomputations on that cluster, found as [\`compare\`](costs.md) finds it for
one cluster. Times include failures, checkpoints and restarts. \`-v\` adds ranges, tokens a second, MFU, meshes and assumptions.
A cluster file can also state the price ([costs.md](costs.md#clusters-hosts-racks-and-networks)).

## Equal cost

\`--equal cost\` gives every further cluster the number of devices that costs as much as those of the first, in whole hosts or trays.

${await printed(STORY.equal)}

A batch must divide over the data ranks: 1440 sequences divide over both 288 and 160 devices.
\`--plans\` names the recipes to compare; without it all are compared.

## By when, and for how much

\`--within\` names the numbers of devices or the clusters that finish the run in time, and takes the cheapest; if none does, it says how
many devices would.
\`--spend\` says how many tokens a sum of money trains, and where, within the time of \`--within\` if that is given.

${await printed(STORY.goals)}

## How far it scales

Lists of \`--devices\`, \`--seq\` or \`--global-batch\` make curves. Over devices a stated batch is strong scaling; without one the batch
is a sequence for each device, which is weak scaling. Efficiency is the throughput of a device, divided by that at the first point.

${await printed(STORY.scaling)}

\`--json\` prints the points and curves, and \`report\` draws them:

\`\`\`sh
npx shardwright ${STORY.scaling} --json > scaling.json
npx shardwright report scaling.json -o scaling.html
\`\`\`

## Many questions

A file names models, clusters and sizes. Each combination of them is one question; its answer is a file of its own in the folder, as
\`compare --json\` prints it.

\`\`\`yaml
${QUESTIONS}\`\`\`

\`\`\`sh
npx shardwright compare --sweep questions.yaml -o answers
\`\`\`

Run again, the command continues from the answers that exist; a question that a time limit stopped is asked again. \`--slice 2/4\` asks
every fourth question, so that four machines can share a folder; answers do not depend on the machine. At the end \`planning.json\` has
the best plan of every point, for \`report\`. A cluster may be a JSON file next to the questions. If one cluster has a price, all must
have one.

On a Ray cluster the Python package does the same with every question as a task: a question whose node is lost is asked again elsewhere,
and the folder equals that of one machine, byte for byte. Shardwright and its Python package must be installed on every node.

\`\`\`
python -m shardwright.sweep --address auto questions.yaml -o answers
\`\`\`

## The layout that you run

\`--layout tp=8,pp=4,dp=8,zero=1\` compares the layout of a running job with the best one, and lists the changes of one setting that bring
it nearer; with \`--tokens\` it prints the cost of both: [costs.md](costs.md#the-layout-that-you-run).

## Run the best one

A report of the comparison (\`compare … --json > c.json\`, \`report c.json -o c.html\`) ends with the configurations that run its best plan:
arguments of Megatron-LM, a configuration of torchtitan, one of MaxText. Each file says what its trainer cannot do as planned.
\`--layout\` reads the first two back.
`;
  return format(text, { ...(await resolveConfig(PLANNING_PAGE)), filepath: PLANNING_PAGE });
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(PLANNING_PAGE, await planningPage());
