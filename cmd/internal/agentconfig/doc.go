// Package agentconfig is the configuration of an agent: its keys, their defaults and what
// is wrong with them. The agent runs with it; agentctl reads the same file, and so checks
// a spoke as the agent of that file will.
//
//	cfg, err := config.Load(config.Program{Name: "agent"}, args, agentconfig.Default())
package agentconfig
