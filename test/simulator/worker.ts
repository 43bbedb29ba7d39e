/** The simulated provider as a Worker of its own; never part of the deployed gateway. */

import { createSimulator } from "./simulator.ts";

export default createSimulator();
