// Package ownership says who owns what on both sides of the link of an agent: Rules, as pure
// functions. They say what the source of a side sends of an object (Content), what its sink
// stores (Stored), which writes make a local object what an event says (Plan), and which upkeep
// an object of ours needs (PlanHubUpdate). What they say of one collection has a file of its own and a row
// in collectionOf. Package mirror carries them out.
package ownership
