/** `models list` and `models show NAME`: prints the known models and their parameter counts. */

import { defined } from '../../../defined.ts';
import type { ModelShape } from '../../../models/architecture.ts';
import { buildModel, countParameters } from '../../../models/build.ts';
import { readModelConfig } from '../../../models/families.ts';
import type { JsonRecord } from '../../../models/read-config.ts';
import { modelEntries, modelEntry } from '../../../models/registry.ts';
import { ofThemPadding, vocabularyPadding } from '../../../models/vocabulary.ts';
import { countText, tableText } from '../../../units.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { HardwareOptions, ModelShowOptions } from './flags.ts';

/** One row of `models list --json`; the keys are a contract. */
interface ModelRow {
  readonly name: string;
  readonly family: string;
  readonly parameters: number;
  /** Parameters that one token meets; only where experts are routed. */
  readonly active?: number;
  readonly layers: number;
  readonly width: number;
  readonly hfId?: string;
}

/** The record that `models show --json` prints; its keys are a contract. */
interface ModelReport extends ModelRow {
  readonly trainable: number;
  /** The part of `parameters` that is padding of the vocabulary; 0 where none is asked for. */
  readonly paddedParameters: number;
  /**
   * Count of the published class, which `parameters` without padding, counted on the graph, must
   * equal.
   */
  readonly published: number;
  readonly shape: ModelShape;
  /** Rows of the padded vocabulary; absent where no padding is asked for. */
  readonly paddedVocabulary?: number;
  readonly source: string;
  readonly verbatim: boolean;
  readonly notes: readonly string[];
  readonly defaults: readonly string[];
  readonly ignored: readonly string[];
  readonly config: JsonRecord;
}

/** `models list`: every model that the package knows, with the counts of the published classes. */
export function listModels(options: HardwareOptions, io: CliIo): number {
  const rows = modelEntries().map(({ name, hfId, parameters, config }): ModelRow => {
    const { type, architecture } = readModelConfig(config);
    const { layers, width } = architecture.shape;
    const { total, active } = parameters;
    const optional = {
      ...defined({ active, hfId }),
    };
    return { name, family: type, parameters: total, layers, width, ...optional };
  });
  if (options.json === true) io.stdout(`${JSON.stringify({ models: rows })}\n`);
  else {
    const header = ['name', 'family', 'parameters', 'active', 'layers', 'width'];
    const cells = rows.map((row) => [
      row.name,
      row.family,
      countText(row.parameters),
      row.active === undefined ? '' : countText(row.active),
      countText(row.layers),
      countText(row.width),
    ]);
    io.stdout(`${tableText([header, ...cells], [2, 3, 4, 5])}\n`);
  }
  return EXIT.ok;
}

/**
 * `models show NAME`: one model, its parameters counted on the graph that is built from its config.
 */
export function showModel(name: string, options: ModelShowOptions, io: CliIo): number {
  const report = modelReport(name, options.padVocab ?? 1);
  answer(io, options, report, reportText);
  return EXIT.ok;
}

/**
 * @param multiple of which the vocabulary is padded to a multiple; 1: not at all
 * @throws E_REF with near names
 */
function modelReport(name: string, multiple = 1): ModelReport {
  const entry = modelEntry(name);
  const config = readModelConfig(entry.config);
  const { shape } = config.architecture;
  // Parameters do not depend on batch and sequence.
  const padVocabulary = { multiple };
  const padding = vocabularyPadding(config, padVocabulary);
  const counts = countParameters(buildModel(config, { batch: 1, seq: 16, padVocabulary }), config);
  return {
    name: entry.name,
    family: config.type,
    parameters: counts.total,
    ...defined({ active: counts.active }),
    layers: shape.layers,
    width: shape.width,
    ...defined({ hfId: entry.hfId }),
    trainable: counts.trainable,
    paddedParameters: padding?.parameters ?? 0,
    published: entry.parameters.total,
    shape,
    ...defined({ paddedVocabulary: padding?.rows }),
    source: entry.source,
    verbatim: entry.verbatim,
    notes: config.notes,
    defaults: config.defaults,
    ignored: config.ignored,
    config: entry.config,
  };
}

function reportText(report: ModelReport): string {
  const { shape } = report;
  const heads =
    shape.keyHeads === shape.heads
      ? `${shape.heads} heads of ${shape.headWidth}`
      : `${shape.heads} heads of ${shape.headWidth} on ${shape.keyHeads} of keys`;
  const sizes =
    `${shape.layers} layers of ${countText(shape.width)}, feed-forward ` +
    `${countText(shape.hidden)}, ${heads}`;
  const { parameters, paddedParameters, published, paddedVocabulary } = report;
  const real = parameters - paddedParameters;
  const counted =
    real === published
      ? 'as the published class'
      : `the published class has ${countText(published)}`;
  const apart =
    paddedParameters === 0
      ? ''
      : `${ofThemPadding(paddedParameters)}; without it ${countText(real)}`;
  const padded = paddedVocabulary === undefined ? '' : `, padded to ${countText(paddedVocabulary)}`;
  const exactness = report.verbatim
    ? "the vendor's file"
    : 'shape-deciding fields exact, others may differ by revision';
  const lines = [
    `${report.name}  (${report.family}${report.hfId === undefined ? '' : `, ${report.hfId}`})`,
    `parameters  ${countText(parameters)}${apart}, ${counted}`,
    ...(report.active === undefined ? [] : [`active      ${countText(report.active)} a token`]),
    ...(report.trainable === report.parameters
      ? []
      : [`trainable   ${countText(report.trainable)}`]),
    `sizes       ${sizes}`,
    ...(shape.vocabulary === 0 ? [] : [`vocabulary  ${countText(shape.vocabulary)}${padded}`]),
    ...(shape.positions === undefined ? [] : [`positions   ${countText(shape.positions)}`]),
    `config      ${exactness}: ${report.source}`,
    ...report.notes.map((note) => `note        ${note}`),
    ...(report.defaults.length === 0 ? [] : [`defaults    ${report.defaults.join(', ')}`]),
    ...(report.ignored.length === 0 ? [] : [`no effect   ${report.ignored.join(', ')}`]),
  ];
  return lines.join('\n');
}
