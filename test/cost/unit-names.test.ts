import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';

/** Numbers that leave the cost room say their unit in their name, or are one of the things that have none. */
const ROOM = join(import.meta.dirname, '..', '..', 'src', 'cost');
const UNIT = /(Seconds|Micros|Bytes|GBps|PerSecond|PerToken|Flops|seconds|bytes|flops)$/;

/** Counts, sizes in elements or devices, degrees, positions, ids, shares and other ratios: no unit to name. */
const WITHOUT_UNIT = new Set(
  `a b activationFactor activeMatmulParameters atRank before canonical channels chunks code collectives context coordinate count
  cuts dataParallel denseLayers devices devicesPerHost dim dimsMask distance divisor efficiency end start step expert falseAlarms
  ffn from to gatheredUnits globalBatch groupSize groups halfIntensity headDim heads hidden hosts id interleavingFactor kvHeads
  largestUnitElements layerStackParameters layers line mape matmulCap matmulEfficiency mean median medianApe memoryBias
  memoryEfficiency memoryMape memoryMedianApe memoryRows meshDim mfu microbatch microbatches n nodes oomCorrect oomRows
  overlapSlowdown perHost perNode pipeline plateau pointwiseTraffic rampAt rampPosition rankedGroups regret regretMax
  regretMean replicas routed rows sequence shards shared spearman split tensor timedRows times topK unfusedTraffic utilisation
  vocab whole wrapMultiple hotMatmulTime attentionShare producer ATTENTION_SHARE COMPUTE MEMORY_BAND SMALLEST_GROUP
  tailShare tailMean tailFactor powerShare tensorOverlap oomBeyondDevice beyondDevice`.split(/\s+/),
);

interface Found {
  readonly where: string;
  readonly name: string;
}

/** Exported functions that return a number, exported numeric constants, and numeric members of exported interfaces. */
function exportedNumbers(path: string): Found[] {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
  const isNumber = (type: ts.TypeNode | undefined): boolean =>
    type !== undefined && (type.kind === ts.SyntaxKind.NumberKeyword || (ts.isUnionTypeNode(type) && type.types.some(isNumber))); // prettier-ignore
  const found: Found[] = [];
  source.forEachChild((node) => {
    if (!ts.canHaveModifiers(node) || !ts.getModifiers(node)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword))
      return;
    if (ts.isFunctionDeclaration(node) && isNumber(node.type)) found.push({ where: path, name: node.name?.text ?? '' });
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

describe('CM-5 in part (the cost room): names of numbers', () => {
  const files = readdirSync(ROOM, { recursive: true, encoding: 'utf8' }).filter((f) => f.endsWith('.ts'));
  const numbers = files.flatMap((f) => exportedNumbers(join(ROOM, f)));

  test('every exported number of the cost room ends in its unit, or has none', () => {
    expect(numbers.length).toBeGreaterThan(100);
    const unnamed = numbers.filter(({ name }) => !UNIT.test(name) && !WITHOUT_UNIT.has(name));
    expect(unnamed.map(({ where, name }) => `${where.slice(ROOM.length + 1)}: ${name}`)).toEqual([]);
  });

  test('nothing that speaks of time, memory, work or rate is among those without a unit', () => {
    const speaks = /second|latency|duration|byte|bandwidth|flop|cost|price/i;
    expect([...WITHOUT_UNIT].filter((name) => speaks.test(name))).toEqual([]);
  });
});
