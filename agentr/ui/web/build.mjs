// Builds the page into ../static, the same byte for byte wherever it is built; with --tests, the tests into build/.
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const common = { absWorkingDir: here("."), bundle: true, charset: "ascii", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning", target: "es2022" };

/** What the licences of the libraries in the page ask for: their text, with every copy. */
function licences() {
  const names = Object.keys(JSON.parse(readFileSync(here("package.json"), "utf8")).dependencies).sort();
  const texts = names.map((name) => `${name}\n\n${readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim()}`);
  return `/* Of this file, these parts are others' work:\n\n${texts.join("\n\n").replaceAll("*/", "* /")}\n*/`;
}

if (process.argv.includes("--tests")) {
  const tests = readdirSync(here("tests")).filter((name) => name.endsWith(".test.ts"));
  await build({ ...common, entryPoints: tests.map((name) => `tests/${name}`), outdir: "build", platform: "node", format: "esm" });
} else {
  mkdirSync(here("../static"), { recursive: true });
  await build({ ...common, entryPoints: { app: "src/app.tsx" }, outdir: "../static", format: "iife", minify: true, legalComments: "none", banner: { js: licences() } });
  copyFileSync(here("src/index.html"), here("../static/index.html"));
  for (const name of ["index.html", "app.js", "app.css"]) console.log(name, statSync(here(`../static/${name}`)).size);
}
