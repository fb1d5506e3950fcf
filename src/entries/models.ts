/**
 * The entry `shardwright/models`: models by name or by their config. It builds their graphs, counts
 * their parameters, and pads their vocabularies.
 *
 * @module shardwright/models
 */
export {
  buildModel,
  type BuildOptions,
  countParameters,
  type ParameterCounts,
} from '../models/build.ts';
export { MODEL_TYPES, type ModelConfig, parseModelConfig } from '../models/families.ts';
export { knownModelConfig, modelEntries, type ModelEntry, modelEntry } from '../models/registry.ts';
export {
  paddedVocabulary,
  tensorRanks,
  type VocabularyPad,
  type VocabularyPadding,
  vocabularyPadding,
} from '../models/vocabulary.ts';
