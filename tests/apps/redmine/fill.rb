# Fills an empty Redmine with rows of every kind to which others refer, and prints the API key. Run by `rails runner`.
Setting.rest_api_enabled = "1"
admin = User.find_by!(login: "admin")
admin.update!(password: ENV.fetch("REDMINE_PASSWORD"), must_change_passwd: false)
User.current = admin

reporter = User.new(firstname: "Ada", lastname: "Reporter", mail: "ada@example.com", language: "en",
                    password: ENV.fetch("REDMINE_PASSWORD"))
reporter.login = "ada"
reporter.save!
activity = TimeEntryActivity.first!
colour = IssueCustomField.create!(name: "Colour", field_format: "list", possible_values: %w[red blue], is_for_all: true,
                                  is_filter: true, searchable: true, trackers: Tracker.all)
helper = IssueCustomField.create!(name: "Helper", field_format: "user", is_for_all: true, trackers: Tracker.all)

projects = %w[first second].map do |name|
  project = Project.create!(name: name.capitalize, identifier: name, trackers: Tracker.all,
                            enabled_module_names: Setting.default_projects_modules)
  Member.create!(project: project, principal: reporter, roles: [Role.givable.first!])
  version = Version.create!(project: project, name: "1.0")
  category = IssueCategory.create!(project: project, name: "Engine", assigned_to: reporter)
  issues = (1..20).map do |n|
    issue = Issue.new(project: project, tracker: project.trackers.first, author: admin, assigned_to: reporter,
                      priority: IssuePriority.first!, subject: "Old #{name} #{n}", category: category,
                      fixed_version: version)
    issue.custom_field_values = { colour.id => %w[red blue][n % 2], helper.id => reporter.id.to_s }
    issue.save!
    issue
  end
  issues[1].reload.update!(parent_issue_id: issues[0].id)
  IssueRelation.create!(issue_from: issues[2], issue_to: issues[3], relation_type: "relates")
  issues[4].reload.init_journal(admin, "An old note")
  issues[4].update!(status: IssueStatus.last!)
  issues[5].add_watcher(reporter)
  Attachment.create!(container: issues[6], author: admin, filename: "old.txt", file: "The text of an old file",
                     content_type: "text/plain")
  TimeEntry.create!(project: project, issue: issues[7], user: admin, author: admin, hours: 1, spent_on: Date.today,
                    activity: activity)
  page = WikiPage.new(wiki: project.wiki, title: "Wiki")
  page.save_with_content(WikiContent.new(page: page, author: admin, text: "An old page, with ##{issues[0].id}"))
  news = News.create!(project: project, author: admin, title: "Old news", description: "News of #{name}")
  Comment.create!(commented: news, author: admin, comments: "An old comment")
  board = Board.create!(project: project, name: "Old board", description: "Talk")
  topic = Message.create!(board: board, author: admin, subject: "Old topic", content: "Talk")
  Message.create!(board: board, author: reporter, subject: "Answer", content: "More talk", parent: topic)
  Document.create!(project: project, category: DocumentCategory.first!, title: "Old document")
  project
end

IssueQuery.create!(name: "Old reds", user: admin, visibility: Query::VISIBILITY_PUBLIC, project: projects[0],
                   filters: { "cf_#{colour.id}" => { operator: "=", values: ["red"] },
                              "assigned_to_id" => { operator: "=", values: [reporter.id.to_s] } },
                   column_names: [:id, :subject, :"cf_#{colour.id}"])
puts admin.api_key
