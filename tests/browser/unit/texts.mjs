// Prints the texts of some modules that a bundle of them, the first file, does not have: what a minifier has changed.

import { readFileSync } from "node:fs";
import ts from "typescript";

/** The strings and the parts of templates in a script. @param {string} file */
function textsOf(file) {
    const found = /** @type {string[]} */ ([]);
    const visit = (/** @type {ts.Node} */ node) => {
        if (ts.isImportDeclaration(node)) return;
        if (ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node))
            found.push(node.text);
        ts.forEachChild(node, visit);
    };
    visit(ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest));
    return found;
}

const [bundle, ...modules] = process.argv.slice(2);
const bundled = new Set(textsOf(bundle));
for (const text of modules.flatMap(textsOf)) if (!bundled.has(text)) console.log(JSON.stringify(text));
