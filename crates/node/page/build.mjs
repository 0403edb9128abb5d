// Builds the page: bundles the sources into one HTML file, and writes the policy that allows a browser
// to run and to show exactly that file, with nothing from anywhere else.
//   node build.mjs [DIRECTORY]     writes index.html and policy.txt there; here unless told
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? here;

/** Bundles one entry of the page, and returns its text. */
async function bundle(entry) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    charset: "utf8",
    format: "iife",
    target: ["chrome115", "firefox115", "safari17"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** The licence of a package that is bundled: it asks to be kept with each copy. */
async function licence(name) {
  const text = await readFile(join(here, "node_modules", name, "LICENSE"), "utf8");
  return `${name}\n\n${text.trim()}`;
}

const [script, style, frame, ...licences] = await Promise.all([
  bundle("src/main.tsx"),
  bundle("src/style.css"),
  readFile(join(here, "src/frame.html"), "utf8"),
  licence("preact"),
  licence("uplot"),
]);

const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "img-src data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

// A function as the replacement: in a string, `$&` and the like would be replaced again.
const page = frame
  .replace("/* licences */", () => licences.join("\n\n").replaceAll("--", "- -"))
  .replace("/* style */", () => style)
  .replace("/* script */", () => script);
await writeFile(join(target, "index.html"), page);
await writeFile(join(target, "policy.txt"), policy);
