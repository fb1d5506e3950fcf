// Writes docs/api/: the reference of the package's entry points, from docstrings (typedoc.json). An
// export without a docstring, or a link that leads nowhere, is an error, and nothing is written.
import { Application, ReflectionKind } from 'typedoc';

const app = await Application.bootstrapWithPlugins();
const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);
for (const entry of project.children ?? [])
  for (const { name, kind, signatures = [] } of entry.children ?? [])
    if (kind === ReflectionKind.Function && signatures.some((signature) => !signature.hasComment()))
      app.logger.error(`${entry.name}: ${name} has no docstring`);
if (app.logger.hasErrors() || app.logger.hasWarnings()) process.exit(1);
await app.generateOutputs(project);
