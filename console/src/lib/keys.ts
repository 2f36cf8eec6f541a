// Keyboard shortcuts: single keys, and sequences such as `g s`. None of them changes anything on the broker.

import { useLayoutEffect, useRef, useSyncExternalStore, type RefObject } from 'react';

export interface Shortcut {
  /** `j`, `g s`, `Ctrl-K`. */
  keys: string;
  label: string;
  run: () => void;
}

type Shortcuts = readonly Shortcut[];

interface Entry {
  shortcuts: Shortcuts;
  /** The part of the page to which the shortcuts belong. */
  scope: RefObject<HTMLElement | null> | undefined;
}

const active: RefObject<Entry>[] = [];
const SEQUENCE_MS = 1_200;
const SETTING = 'brokkr-single-keys';
const listeners = new Set<() => void>();
let enabled = localStorage.getItem(SETTING) !== 'off';
let pending = '';
let pendingSince = 0;

/** Offers shortcuts while the component is shown. Of two lists with the same keys, the one with the focus gets them. */
export function useShortcuts(shortcuts: Shortcuts, scope?: RefObject<HTMLElement | null>): void {
  const entry = useRef<Entry>({ shortcuts, scope });
  useLayoutEffect(() => {
    entry.current = { shortcuts, scope };
  });
  // Before the list is painted, so that no key is lost.
  useLayoutEffect(() => {
    active.push(entry);
    return () => {
      active.splice(active.indexOf(entry), 1);
    };
  }, []);
}

/** Returns all shortcuts of the current page, the most specific first. */
export function currentShortcuts(): Shortcut[] {
  const entries = active.toReversed().map((entry) => entry.current);
  const all = entries.toSorted(byRank).flatMap((entry) => entry.shortcuts);
  return all.filter((one, at) => all.findIndex((other) => other.keys === one.keys) === at);
}

/** Sorts what has the focus first, then the parts of the page from top to bottom, then the page and its frame. */
function byRank(one: Entry, other: Entry): number {
  const [here, there] = [one.scope?.current, other.scope?.current];
  if (here == null || there == null) return Number(here == null) - Number(there == null);
  const hasFocus = (part: HTMLElement) => Number(part.contains(document.activeElement));
  if (hasFocus(here) !== hasFocus(there)) return hasFocus(there) - hasFocus(here);
  return here.compareDocumentPosition(there) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
}

/** Single-key shortcuts can be turned off, for people with input software that types letters (WCAG 2.1.4). */
export function useSingleKeys(): [boolean, (on: boolean) => void] {
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  return [useSyncExternalStore(subscribe, () => enabled), setSingleKeys];
}

function setSingleKeys(on: boolean): void {
  enabled = on;
  localStorage.setItem(SETTING, on ? 'on' : 'off');
  for (const listener of listeners) listener();
}

export function listenToKeys(): () => void {
  document.addEventListener('keydown', onKeyDown);
  return () => document.removeEventListener('keydown', onKeyDown);
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey) return;
  const control = event.ctrlKey || event.metaKey;
  if (control) {
    // A search above a dialog would leave the act that it asks about.
    if (!isInDialog(event.target)) run(event, `Ctrl-${event.key.toUpperCase()}`);
    return;
  }
  if (!enabled || isTyping(event.target) || isPressing(event)) return;
  const isNew = Date.now() - pendingSince > SEQUENCE_MS;
  const sequence = isNew || pending === '' ? event.key : `${pending} ${event.key}`;
  const isPrefix = currentShortcuts().some((one) => one.keys.startsWith(`${sequence} `));
  pending = isPrefix ? sequence : '';
  pendingSince = Date.now();
  if (!isPrefix) run(event, sequence);
}

function run(event: KeyboardEvent, keys: string): void {
  const shortcut = currentShortcuts().find((one) => one.keys === keys);
  if (shortcut === undefined) return;
  event.preventDefault();
  shortcut.run();
}

/** Where letters are text, or choose an item. */
const TEXT = 'input, textarea, select, [contenteditable], [role="menu"], [role="dialog"]';

/** Enter presses the button that has the focus, also in a row that Enter opens. */
function isPressing({ key, target }: KeyboardEvent): boolean {
  return key === 'Enter' && target instanceof HTMLElement && target.closest('button, a, summary') !== null;
}

function isInDialog(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest('[role="dialog"]') !== null;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest(TEXT) !== null;
}
