/**
 * The overlapped step, case by case: what is simulated of the plan of least summed costs, of the
 * best recipe and of the plan that is looked for with overlap in view; the proven bound, the gap,
 * and CPU seconds. Prints the rows of `bench/overlap.md`.
 *
 *     npx tsx bench/overlap.ts [part of a case's name]...
 */
import { loadModel } from '../src/cli/input/load.ts';
import { decode } from '../src/plan/choice/decode.ts';
import { leastCostPlanOf } from '../src/plan/least-cost-plan.ts';
import { prepare } from '../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../src/plan/request/request.ts';
import { priceRecipes } from '../src/recipes/compare/compare.ts';
import { simulatedSeconds } from '../src/recipes/compare/simulated.ts';
import { overlapPlan } from '../src/simulate/overlap/plan.ts';
import { percentText, secondsText } from '../src/units.ts';

const FILE = (name: string): string => `test/fixtures/torch/${name}/joint.expanded.txt.gz`;
const [BERT, GPT2, GPT2_12, VIT] = ['bert-base', 'gpt2-2l', 'gpt2-12l', 'vit-tiny'].map(FILE);
const [LLAMA_2, LLAMA_32, MIXTRAL] = ['llama3-8b-2l', 'llama3-8b-32l', 'mixtral-tiny'].map(FILE);
/** Model, mesh, cluster, and what else is asked. */
const CASES: readonly (readonly [string, string, string, Partial<PlanRequest>?])[] = [
  [BERT, 'dp=8', 'dgx-h100'],
  [BERT, 'dp=8', 'dgx-h100', { cost: 'alpha-beta' }],
  [BERT, 'dp=4,tp=2', 'dgx-a100'],
  [BERT, 'dp=2,tp=8', 'dgx-h100'],
  [GPT2, 'dp=8', 'dgx-h100'],
  [GPT2, 'dp=4,tp=2', 'gb200'],
  [GPT2_12, 'dp=8', 'dgx-a100'],
  [GPT2_12, 'dp=2,tp=8', 'dgx-h100'],
  [LLAMA_2, 'dp=8', 'dgx-h100'],
  [LLAMA_2, 'dp=8,tp=8', 'dgx-h100'],
  [LLAMA_2, 'pp=2,dp=4,tp=8', 'dgx-h100'],
  [LLAMA_32, 'dp=8', 'gb200'],
  [LLAMA_32, 'dp=8,tp=8', 'dgx-h100'],
  ['llama-3.2-1b', 'dp=8', 'dgx-a100'],
  ['llama-3.2-1b', 'dp=4,tp=2', 'dgx-h100'],
  ['qwen3-0.6b', 'dp=2,tp=8', 'dgx-a100'],
  [MIXTRAL, 'dp=8', 'dgx-h100'],
  [VIT, 'dp=8', 'dgx-h100'],
  [VIT, 'dp=4,tp=2', 'gb200'],
];
const CLUSTERS: Readonly<Record<string, string>> = {
  'dgx-a100': 'dgx-a100-80gb',
  gb200: 'gb200-nvl72',
};

const cpuSeconds = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

async function row([path, mesh, cluster, more = {}]: (typeof CASES)[number]): Promise<string> {
  const built = path.endsWith('.gz') ? {} : ({ batch: 16, seq: 2048, training: true } as const);
  const { graph, table } = await loadModel(path, built);
  const request = { ...DEFAULT_REQUEST, mesh, cluster: CLUSTERS[cluster] ?? cluster, ...more };
  const began = cpuSeconds();
  const prepared = prepare(graph, request, table);
  const recipes = await priceRecipes(prepared);
  const starts = recipes.flatMap((r) => (r.status === 'priced' ? [r.choice] : []));
  const result = await leastCostPlanOf(prepared, { starts });
  const served = cpuSeconds();
  const name =
    `${path.replace(/^.*torch\/|\/joint.*$/g, '')} ${mesh} ` +
    `${cluster}${more.cost === undefined ? '' : ` ${more.cost}`}`;
  if (result.status === 'infeasible') return `| ${name} | infeasible: ${result.conflict.join()} |`;
  const played = recipes.flatMap((r) => {
    if (r.status !== 'priced' || r.peakBytes > prepared.question.budgetBytes) return [];
    const { model } =
      r.choice.length === prepared.model.variables.length
        ? (prepared.allPrices ?? prepared)
        : prepared;
    return [
      {
        name: r.name,
        seconds: simulatedSeconds({ ...prepared, model }, r.choice, decode(model, r.choice)),
      },
    ];
  });
  const recipe = played.reduce((a, b) => (b.seconds < a.seconds ? b : a), {
    name: 'none',
    seconds: Infinity,
  });
  const before = cpuSeconds();
  const overlap = await overlapPlan(result, { starts });
  const after = cpuSeconds();
  const cells = [
    name,
    secondsText(overlap.baseSimulatedSeconds),
    recipe.seconds === Infinity ? 'none fits' : `${secondsText(recipe.seconds)} ${recipe.name}`,
    secondsText(overlap.simulatedSeconds),
    secondsText(overlap.boundSeconds),
    percentText(overlap.gap),
    (served - began).toFixed(1),
    (after - before).toFixed(1),
  ];
  return `| ${cells.join(' | ')} |`;
}

const wanted = process.argv.slice(2);
console.log(
  '| case | summed costs, simulated | best recipe, simulated | overlapped | bound | gap | ' +
    'CPU s, plan | CPU s, overlap |',
);
console.log('| --- | --- | --- | --- | --- | --- | --- | --- |');
for (const one of CASES) {
  const [path, mesh, cluster] = one;
  const name = `${path} ${mesh} ${cluster}`;
  if (wanted.length > 0 && !wanted.some((part) => name.includes(part))) continue;
  console.log(await row(one).catch((e: unknown) => `| ${name} | ${String(e)} |`));
}
