//go:build linux && !soak

package mistake

// timesDecide says whether a test fails when a mistake is told late. Beside two hundred other
// tests a time says how busy the machine is, so that it is printed and decides nothing.
const timesDecide = false
