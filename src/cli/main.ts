#!/usr/bin/env node
import './runtime.ts';
import { runCli } from './program.ts';

process.exitCode = await runCli(process.argv.slice(2), {
  stdout: (text) => void process.stdout.write(text),
  stderr: (text) => void process.stderr.write(text),
  isTerminal: process.stderr.isTTY === true,
});
