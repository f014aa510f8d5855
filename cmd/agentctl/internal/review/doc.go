// Package review checks, before a program runs, a configuration of the principal or the agent
// by what is in its cluster. It reads only.
package review
