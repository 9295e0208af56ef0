import { isInteger, parse } from "lossless-json";
import pg from "pg";

/** Keeps an integer that a number would round as the text that it was. */
const exact = (text: string) => isInteger(text) && !Number.isSafeInteger(Number(text)) ? text : Number(text);

export const parseExactly = (json: string) => parse(json, null, exact);

pg.types.setTypeParser(pg.types.builtins.JSON, parseExactly);
