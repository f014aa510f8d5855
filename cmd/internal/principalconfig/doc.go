// Package principalconfig is the configuration of the principal: its keys, their
// defaults and what is wrong with them, and what of it says whose the hub's
// Applications are. The principal runs with it; agentctl reads the same file, and so
// checks a hub as the principal of that file will.
//
//	cfg, err := config.Load(config.Program{Name: "principal"}, args, principalconfig.Default())
package principalconfig
