// All words of the console, in one typed catalogue.

import { activity, approvals } from './activity';
import { acts } from './acts';
import { admin } from './admin';
import { adminActs } from './adminActs';
import { common } from './common';
import { matrix } from './matrix';
import { pages } from './pages';
import { rollout } from './rollout';
import { rolloutCommands } from './rolloutCommands';
import { why } from './why';

export const words = { ...common, ...pages, activity, approvals, acts, admin, adminActs, matrix, rollout, rolloutCommands, why };
