// Command coordsvc runs the coordination service, and speaks to one from scripts.
//
// It maps flags, environment variables and a configuration file to app.Options, turns signals into the end of
// a context and errors into exit codes. Everything else is in internal/app and below.
package main
