/**
 * Writes docs/models.md from data/models.json: every model that is known by name, with the counts
 * of its published class and the source of its config. A test compares the two. Run: npx tsx
 * scripts/docs-models.ts
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

import { readModelConfig } from '../src/models/families.ts';
import { modelEntries, type ModelEntry } from '../src/models/registry.ts';
import { countText } from '../src/units.ts';

/** Path of the page. */
export const MODELS_PAGE = fileURLToPath(new URL('../docs/models.md', import.meta.url));

/** The page, formatted as the repository is. */
export async function modelsPage(entries: readonly ModelEntry[] = modelEntries()): Promise<string> {
  const families = new Map<string, ModelEntry[]>();
  for (const entry of entries) {
    const { type } = readModelConfig(entry.config);
    const known = families.get(type);
    if (known === undefined) families.set(type, [entry]);
    else known.push(entry);
  }
  const sections = [...families].map(([type, members]) => `## ${type}\n\n${table(members)}`);
  const text = `# Models by name

<!-- Written by scripts/docs-models.ts from data/models.json; a test compares the two. -->

${entries.length} models of ${families.size} families are known by name or by their Hugging Face id, including those of tuned releases. Each is built from its config with our own operators, in
training and inference form; its parameters, counted on the graph, are those of the published class. A config of decoders of the Llama kind, GPT-2 or BERT
may also state a class that ends in \`ForSequenceClassification\` or \`ForTokenClassification\`: its head has the \`id2label\` or \`num_labels\` of the config.

\`\`\`sh
npx shardwright models list
npx shardwright models show llama-3.1-8b                # sizes, the source of the config, its fields without effect
npx shardwright plan llama-3.1-8b --layers 4 --batch 16 --seq 4096 --mesh dp=8,tp=8 --cluster dgx-h100
npx shardwright compare gpt2 --batch 8 --devices 8 --cluster dgx-h100
\`\`\`

A \`config.json\` of one of these families, with other sizes, is read in the same way: give its path instead of a name. An
unknown family is refused with the nearest known ones. _Config_: \`vendor\` is the vendor's own file; \`shapes\` has the fields that
decide shapes exactly, others may differ by revision. _Active_: parameters that one token meets, where experts are routed.

## Padded vocabularies

Models have exactly the parameters of their class. Frameworks pad the vocabulary, so that every tensor rank holds an equal, aligned
part of it; \`--pad-vocab N\` does as Megatron-LM does, to the next multiple of N times the tensor ranks:

\`\`\`sh
npx shardwright models show gpt2 --pad-vocab 128         # 50,257 to 50,304; the padding is counted apart
npx shardwright plan gpt2 --mesh dp=2,tp=8 --cluster dgx-h100 --pad-vocab 128 -o plan/   # to 51,200
npx shardwright compare gpt2 --devices 16 --cluster dgx-h100 --pad-vocab 128   # by the tp of each mesh
\`\`\`

The tensor ranks are the size of the mesh dim \`tp\` (else \`tensor\`, \`model\` or \`mp\`; 1 without any), so \`inspect\` and \`models show\`
pad to a multiple of N alone: for 8 ranks give them \`--pad-vocab 1024\`. The tables of the embedding and of the output layer, tied or
not, and the logits have the padded rows; token ids stay below the real vocabulary. The padded classes take part in the softmax of
the loss like any other, as in Megatron-LM, so the loss is that of a model with so many classes. \`--pad-vocab 1\` pads nothing.

Every count of a model that is built says how much of it is padding: \`paddedParameters\` of \`inspect\`, \`models show\` and \`plan\` (\`--json\`; part of
\`parameters\`). A plan folder keeps what was padded in \`request.json\` (\`padVocabulary\`) and the padded program in \`graph.swg\`, so that
\`verify\`, \`report\` and \`audit\` of the folder are of the padded model; \`audit\` of another model than that is refused. \`compare\` of a model
by name pads each mesh for its own tp, and its MFU counts the FLOPs of the real vocabulary; with \`--layers\`, \`--batch\` or
\`--forward\`, where one graph stands for all meshes, it pads for the most tensor ranks of any plan. Both say so, with \`padding\`
in their JSON. From the library: \`buildModel(config, { padVocabulary: { multiple: 128, tensor: 8 } })\`, with what
\`vocabularyPadding\` answers as \`padVocabulary\` of the request.

${sections.join('\n\n')}

## Sources

${sources(entries)}
`;
  return format(text, { ...(await resolveConfig(MODELS_PAGE)), filepath: MODELS_PAGE });
}

function table(members: readonly ModelEntry[]): string {
  const rows = members.map((entry) => {
    const { shape } = readModelConfig(entry.config).architecture;
    const heads =
      shape.keyHeads === shape.heads ? `${shape.heads}` : `${shape.heads} on ${shape.keyHeads}`;
    const { total, active } = entry.parameters;
    return [
      `\`${entry.name}\``,
      countText(total),
      active === undefined ? '' : countText(active),
      `${shape.layers}`,
      countText(shape.width),
      heads,
      shape.vocabulary === 0 ? '' : countText(shape.vocabulary),
      entry.hfId === undefined ? '' : `\`${entry.hfId}\``,
      entry.verbatim ? 'vendor' : 'shapes',
    ];
  });
  const head = [
    'name',
    'parameters',
    'active',
    'layers',
    'width',
    'heads',
    'vocabulary',
    'Hugging Face',
    'config',
  ];
  const rule = ['---', '--:', '--:', '--:', '--:', '---', '--:', '---', '---'];
  return [head, rule, ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/** Where configs are from, each source once with the models that it gave. */
function sources(entries: readonly ModelEntry[]): string {
  const bySource = new Map<string, string[]>();
  for (const { name, source } of entries) {
    const known = bySource.get(source);
    if (known === undefined) bySource.set(source, [name]);
    else known.push(name);
  }
  return [...bySource].map(([source, names]) => `- ${source}: ${names.join(', ')}`).join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(MODELS_PAGE, await modelsPage());
