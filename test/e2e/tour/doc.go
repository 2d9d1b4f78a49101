// Package tour follows the README's tour as a newcomer would: it builds the program, serves with it, pastes every
// block of commands into a shell, and compares what comes back with what the README says about it.
//
// It sees to it that the tour works as pasted. It does not test the service: the packages do that.
package tour
