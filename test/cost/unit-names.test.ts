import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import ts from 'typescript';
import { describe, expect, test } from 'vitest';

/**
 * Numbers that leave the rooms of costs, memory and time say their unit in their name, or are one
 * of the things that have none.
 */
const SOURCE = join(import.meta.dirname, '..', '..', 'src');
const ROOMS = ['cost', 'passes/checkpoint', 'simulate/timeline', 'simulate/pipeline'];
const UNIT =
  /(Seconds|Micros|Bytes|GBps|PerSecond|PerSecondPerDevice|PerToken|Flops|seconds|bytes|flops|Watts|kilowatts|PerKilowattHour|Tonnes|Hours|HoursBetweenFailures|_SECONDS|_BYTES)$/;

/**
 * Counts, sizes in elements or devices, degrees, positions, ids, shares and other ratios: no unit
 * to name.
 */
const WITHOUT_UNIT = new Set(
  `a b activationFactor activeMatmulParameters atRank before canonical channels chunks code collectives context coordinate count
  cuts dataParallel denseLayers devices devicesPerHost dim dimsMask distance divisor efficiency end start step expert falseAlarms
  ffn from to gatheredUnits globalBatch groupSize groups halfIntensity headDim heads hidden hosts id interleavingFactor kvHeads
  largestUnitElements layerStackParameters layers line mape matmulCap matmulEfficiency mean median medianApe memoryBias
  memoryEfficiency memoryMape memoryMedianApe memoryRows meshDim mfu microbatch microbatches n nodes oomCorrect oomRows
  overlapSlowdown perHost perNode pipeline plateau pointwiseTraffic rampAt rampPosition rankedGroups regret regretMax
  regretMean replicas routed rows sequence shards shared spearman split tensor timedRows times topK unfusedTraffic utilisation
  vocab whole wrapMultiple hotMatmulTime clockTime attentionShare producer ATTENTION_SHARE COMPUTE MEMORY_BAND SMALLEST_GROUP
  budget chunk discarded forwardTemporarySlots backwardTemporarySlots idleShare inPlaceOf inputSlots intercept kept
  keptMicrobatches kernels kneeBudget kneeOf overlapDiscount peakAt prefetch ratio recomputed rounds savedSlots serialRatio
  slope squaredError stage stream weight leastEvaluations pid tid
  nvlinks cards cardsPerDevice processes threads allocatorShare
  delayedTasks heldBack tailShare tailMean tailFactor powerShare tensorOverlap oomBeyondDevice beyondDevice
  bins gap TIE columns version furtherTokens query keyValue rotary pairWidth forwardShare backwardShare
  INTRA_EFFICIENCY INTER_EFFICIENCY devicesPerTray usedPerHost hostSize idleDevices heldDevices oversubscription amount pue
  tokens steps goodput tokensPerStep tokensPerCurrency accelerators chips_per_host nvlink_domain accelerators_per_tray
  HEADROOM headroomOf p10 p50 p90 runs memoryRuns bias rank fitProbability weightedQuantile
  part share processorsOf stateOf patience largestProbability headroom
  node lastForward firstBackward heldShare cacheShare`.split(/\s+/),
);

/**
 * Fields of the trace-event format, in microseconds (`timeline/trace.ts`), and of
 * `data/hardware.json`, whose units stand inside.
 */
const FORMAT = new Set([
  'ts',
  'dur',
  'mem_GB',
  'mem_usable_MiB',
  'tdp_W',
  'system_W',
  'scaleout_GBps_unidir_per_gpu',
]);

/** What speaks of time, memory, work or rate. */
const SPEAKS = /second|latency|duration|byte|bandwidth|flop|cost|price/i;

/**
 * Names of the other rooms that speak of such a thing and do not end in a unit, each with what it
 * is.
 */
const ELSEWHERE: Readonly<Record<string, string>> = {
  cost: 'units of a choice problem; of an operator table, relative to an add',
  costOf: 'units of a choice problem',
  costTarget: 'units of a scaled program',
  edgeCost: 'units of a choice problem',
  bytesFreed: 'bytes: a key of the audit that is published so',
  secondsSaved: 'seconds: a key of the audit that is published so',
  recost: 'seconds',
  pricedLayers: 'count',
  priceRows: 'units of a choice problem: a bound',
  floorPrice: 'units of a choice problem for one of a row',
  latency: 'share of the paths that count it',
};

interface Found {
  readonly where: string;
  readonly name: string;
}

/**
 * Exported functions that return a number, exported numeric constants, and numeric members of
 * exported interfaces.
 */
function exportedNumbers(path: string): Found[] {
  const known = read.get(path) ?? numbersIn(path);
  read.set(path, known);
  return known;
}

/** Every file is read once. */
const read = new Map<string, Found[]>();

function numbersIn(path: string): Found[] {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), {
    languageVersion: ts.ScriptTarget.Latest,
    jsDocParsingMode: ts.JSDocParsingMode.ParseNone,
  });
  const isNumber = (type: ts.TypeNode | undefined): boolean =>
    type !== undefined &&
    (type.kind === ts.SyntaxKind.NumberKeyword ||
      (ts.isUnionTypeNode(type) && type.types.some(isNumber)));
  const found: Found[] = [];
  source.forEachChild((node) => {
    if (
      !ts.canHaveModifiers(node) ||
      !ts.getModifiers(node)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)
    )
      return;
    if (ts.isFunctionDeclaration(node) && isNumber(node.type))
      found.push({ where: path, name: node.name?.text ?? '' });
    if (ts.isVariableStatement(node))
      for (const { name, initializer } of node.declarationList.declarations)
        if (ts.isIdentifier(name) && initializer !== undefined && ts.isNumericLiteral(initializer))
          found.push({ where: path, name: name.text });
    // A record that is named by its unit gives it to its members.
    if (ts.isInterfaceDeclaration(node) && !UNIT.test(node.name.text))
      for (const member of node.members) {
        const type = ts.isPropertySignature(member)
          ? member.type
          : ts.isMethodSignature(member)
            ? member.type
            : undefined;
        if (isNumber(type) && member.name !== undefined && ts.isIdentifier(member.name))
          found.push({ where: `${path}: ${node.name.text}`, name: member.name.text });
      }
  });
  return found;
}

function numbersOf(room: string): Found[] {
  const folder = join(SOURCE, room);
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((f) =>
    f.endsWith('.ts'),
  );
  return files.flatMap((f) => exportedNumbers(join(folder, f)));
}

const told = ({ where, name }: Found): string => `${where.slice(SOURCE.length + 1)}: ${name}`;

describe('names of numbers', () => {
  test.each(ROOMS)('every exported number of src/%s ends in its unit, or has none', (room) => {
    const numbers = numbersOf(room);
    expect(numbers.length).toBeGreaterThan(10);
    expect(
      numbers
        .filter(({ name }) => !UNIT.test(name) && !WITHOUT_UNIT.has(name) && !FORMAT.has(name))
        .map(told),
    ).toEqual([]);
  });

  test('nothing that speaks of time, memory, work or rate is among those without a unit', () => {
    expect([...WITHOUT_UNIT].filter((name) => SPEAKS.test(name))).toEqual([]);
  });

  test('no exported number of any room speaks of time, memory, work or rate without ending in its unit', () => {
    const numbers = numbersOf('');
    expect(numbers.length).toBeGreaterThan(1000);
    const bare = numbers.filter(({ name }) => SPEAKS.test(name) && !UNIT.test(name));
    expect(bare.filter(({ name }) => !(name in ELSEWHERE)).map(told)).toEqual([]);
    // The list holds no name that is gone.
    expect(
      Object.keys(ELSEWHERE).filter((name) => !bare.some((found) => found.name === name)),
    ).toEqual([]);
  });
});
