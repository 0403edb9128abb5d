// Selects fields: transform-js FIELD… <lines.ndjson
//
// Reads one JSON object a line from standard input and prints it with the named fields only, in
// the order named; then the number of lines and, for each field, of how many had it. The run
// fails if a line is not an object.

import { getArguments } from 'wasi:cli/environment@0.2.0';
import { getStdin } from 'wasi:cli/stdin@0.2.0';
import { getStdout } from 'wasi:cli/stdout@0.2.0';

// The most that WASI takes in one blocking write.
const WRITE_BYTES = 4096;
const READ_BYTES = 65536n;

export const run = {
  run() {
    try {
      transform(getArguments().slice(1));
    } catch (error) {
      console.error(`transform-js: ${error}`);
      throw error;
    }
  },
};

function transform(fields) {
  const present = new Map(fields.map((field) => [field, 0]));
  let lines = 0;
  let output = '';
  for (const line of read().split('\n')) {
    if (line === '') continue;
    lines += 1;
    output += JSON.stringify(select(JSON.parse(line), present)) + '\n';
  }
  output += JSON.stringify({ lines, present: Object.fromEntries(present) }) + '\n';
  write(output);
}

// The fields of `object` that `present` counts.
function select(object, present) {
  const selected = {};
  for (const [field, count] of present) {
    if (Object.hasOwn(object, field)) {
      selected[field] = object[field];
      present.set(field, count + 1);
    }
  }
  return selected;
}

function read() {
  const stdin = getStdin();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    let bytes;
    try {
      bytes = stdin.blockingRead(READ_BYTES);
    } catch (error) {
      if (error.payload?.tag === 'closed') return text + decoder.decode();
      throw error;
    }
    text += decoder.decode(bytes, { stream: true });
  }
}

function write(text) {
  const stdout = getStdout();
  const bytes = new TextEncoder().encode(text);
  for (let start = 0; start < bytes.length; start += WRITE_BYTES) {
    stdout.blockingWriteAndFlush(bytes.subarray(start, start + WRITE_BYTES));
  }
}
