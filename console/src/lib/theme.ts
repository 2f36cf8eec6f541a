// The chosen theme. Without a choice, the console follows the system.

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const SETTING = 'brokkr-theme';

export function theme(): Theme {
  const stored = localStorage.getItem(SETTING);
  return THEMES.find((one) => one === stored) ?? 'system';
}

export function chooseTheme(choice: Theme): void {
  localStorage.setItem(SETTING, choice);
  applyTheme();
}

export function applyTheme(): void {
  const choice = theme();
  if (choice === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = choice;
}
